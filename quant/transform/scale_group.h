// Places where a factor a channel can move between an activation and the weights that read it:
//
//   x_c  becomes  x_c / s_c   folded into the constants that make x (channel_fold.h), or by a Mul of its own
//   W_c  becomes  W_c * s_c   in every linear node of the group
//
// The float function stays what it was. SmoothQuant, AWQ and cross-layer equalization are choices of s
// (scale_search.h) for such a place: norm -> q, k, v; v -> o; up -> down; convolution -> convolution.
#pragma once

#include <string>
#include <vector>

#include "engine/ir/subgraph.h"
#include "quant/transform/channel_fold.h"

namespace pare::quant {

struct ScaleGroup {
  SubgraphPath path;
  ValueId value = ValueId::kNone;  // x
  int channel_axis = 1;
  std::int64_t channels = 0;
  std::vector<NodeId> consumers;  // linear nodes that read x as input 0; their weights are read by no other
  bool folded = false;            // false: only a Mul in front of the consumers will do
  ChannelFold fold;
};

// In graph order, subgraphs included. `clips`: through Clip too, whose limits become one a channel.
std::vector<ScaleGroup> find_scale_groups(const Graph& graph, bool clips);

// Moves s (one a channel, > 0, finite). group.value carries x / s afterwards: the value itself, or the output
// of a new Mul (NAME_scaled). group.fold.changed lists the values that are not what they were. False, and
// nothing happens, when an earlier change took the place away.
bool apply_scales(Graph& graph, ScaleGroup& group, const std::vector<float>& s);

}  // namespace pare::quant
