// Which channel each element of a value has, and how that looks on the other side of an operator that only
// moves elements.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ir/graph.h"

namespace pare::quant {

// dims are those of the value, or 1 where all along an axis are alike. -1: an element of no channel.
struct ChannelMap {
  Dims dims;
  std::vector<std::int32_t> channel;  // row by row over dims

  static ChannelMap along(int rank, int axis, std::int64_t channels);
  bool untouched() const;  // every element -1
};

// Nothing varies but along this axis.
bool only_axis(const ChannelMap& map, int axis);
// Can a constant of these dims be combined with the map, element by element?
bool broadcasts(const Dims& constant, const Dims& map);
// The map as an operand of an elementwise operator sees it. False where the operand repeats along channels.
bool unbroadcast(const Graph& graph, ValueId operand, const ChannelMap& map, ChannelMap& inner);

// The map of input 0 from that of output `out`: Transpose, Reshape, Flatten, Squeeze, Unsqueeze, Slice,
// Split, Gather of constant places, Expand, reductions over other axes, Pad with zeros. False for everything
// else. `lone`: no other node reads the input, so elements that are cut away may be scaled too (unless they
// are another output of the same Split that somebody reads).
bool back_through_movement(const Graph& graph, const Node& node, int out, bool lone, const ChannelMap& map,
                           ChannelMap& inner);
// The map of input i of a Concat, the parts being asked for in order; `at` moves along its axis.
bool back_through_concat(const Graph& graph, const Node& node, std::size_t i, std::int64_t& at,
                         const ChannelMap& map, ChannelMap& inner);
// A reader that takes only elements without channel (a slice of others), or only the shape.
bool sees_nothing(const Graph& graph, const Use& use, const ChannelMap& map);

}  // namespace pare::quant
