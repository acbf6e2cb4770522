// What the files of finished blocks (block_outcome.h) and the model behind them take on the disk, known
// before any block is solved.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graphsurgeon/block_cut.h"
#include "quant/placement/spec.h"

namespace pare {

struct DiskNeed {
  // Codes, scales and zero points of every layer that the spec quantizes; 4 bytes a weight of those that it
  // leaves float, unless the graph has them as float32 already, or nothing of their block is quantized. Small
  // tensors and headers are not counted.
  std::int64_t blocks = 0;
  // The same, and all other constants in the types that the graph has them in.
  std::int64_t model = 0;
};
DiskNeed disk_need(const Graph& graph, const std::vector<GraphBlock>& blocks, const quant::Spec& spec);

// Error kDevice where fewer bytes are free in `folder`. Nothing where nobody can tell. `what`: that takes
// them, for the message.
void check_room(const std::string& folder, std::int64_t bytes, const std::string& what);

}  // namespace pare
