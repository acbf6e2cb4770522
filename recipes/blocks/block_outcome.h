// What the quantization of one block gave: kept in a file, and joined to those of the other blocks into what
// quantize_model() would have returned for the whole model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "graphsurgeon/graph_copy.h"
#include "recipes/quantize/quantize_model.h"

namespace pare {

// A line of the report's table.
struct BlockRecord {
  std::string name;
  std::int64_t layers = 0;    // weights that were quantized
  double seconds = 0;         // of solving it
  double output_sqnr_db = 0;  // of its output, given what the block before hands over; NaN: not measured
  std::string candidate;      // that was chosen; "" where nothing was scored
};

struct BlockOutcome {
  QuantizeOutcome outcome;  // of the block's graph; `quantized` is apply() of the plan
  BlockRecord record;
};

// The graph without gaps in its ids, and the plan with them. `quantized` is made anew.
QuantizeOutcome compacted(QuantizeOutcome outcome);

// FILE: a line of JSON and the tensors (graph_record.h). `key`: a hash of all that decides the block. Of what
// the block's graph holds, only what codes do not say is written: neither the float weights behind codes,
// which are absent when the block is read (engine/base/absent_tensor.h), nor constants that `model`, the
// whole float graph, has under the same name (an embedding), which are views of it then. Error kInternal
// where a code is not the nearest to its weight, and the plan says that it is: nobody can find that out
// later.
void save_block(const std::string& path, const std::string& key, const BlockOutcome& block,
                const Graph& model);
// Tensors are views of the mapped file, or of `model`. Nothing where there is no file, or one of another key
// or damaged; then `why` says what is wrong with it.
std::optional<BlockOutcome> load_block(const std::string& path, const std::string& key, const Graph& model,
                                       std::string* why = nullptr);

// Joins blocks in order.
class BlockAssembly {
 public:
  // `model`: the whole float graph, for names, inputs and metadata.
  explicit BlockAssembly(const Graph& model);

  // `in`: the value of the block's graph that the block before computes; "" for the first.
  void add(const QuantizeOutcome& block, const std::string& in, const std::string& name);
  QuantizeOutcome finish();

 private:
  QuantizeOutcome whole_;
  ValueId last_ = ValueId::kNone;  // that the next block reads
  std::vector<ValueId> outputs_;
};

}  // namespace pare
