// What a session remembers of one node: for each set of input shapes the kernel, what it prepared, and the
// output shapes. Internal to engine/run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/ir/schema.h"
#include "engine/ops/registry.h"
#include "engine/run/run_context.h"
#include "engine/run/slot.h"

namespace pare {

// One set of input shapes.
struct Variant {
  std::vector<std::int64_t> key;  // dtype, rank and sizes of every input
  bool reads_values = false;      // output shapes hold for these input values only
  std::vector<OutputType> outputs;
  const Kernel* kernel = nullptr;
  std::shared_ptr<const void> prepared;
  std::int64_t alias_offset = 0;
  std::vector<TensorView> in, out;  // dtype and dims filled in; data set at each run
};

class NodePlan {
 public:
  NodePlan(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  // For the inputs that stand in `slots` (by ValueId). Error kUnsupported when no kernel takes them.
  Variant& variant_for(const std::vector<Slot>& slots, RunContext& context);
  std::string kernel() const;  // last used, "" before

 private:
  Variant make(const std::vector<Slot>& slots, std::vector<std::int64_t> key, RunContext& context) const;
  std::size_t kept() const;

  const Graph& graph_;
  const Node& node_;
  std::vector<Variant> variants_;  // most recent first
  std::vector<std::int64_t> key_;
};

}  // namespace pare
