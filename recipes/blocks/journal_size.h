// What the files of finished blocks (block_outcome.h) take on the disk, known before any block is solved.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graphsurgeon/block_cut.h"
#include "quant/placement/spec.h"

namespace pare {

// Codes, scales and zero points of every layer that the spec quantizes; 4 bytes a weight of those that it
// leaves float, unless the graph has them as float32 already. Small tensors and headers are not counted.
std::int64_t journal_bytes(const Graph& graph, const std::vector<GraphBlock>& blocks,
                           const quant::Spec& spec);

// Error kDevice where fewer bytes are free in `folder`. Nothing where nobody can tell.
void check_journal_room(const std::string& folder, std::int64_t bytes);

}  // namespace pare
