// Where a factor a channel can go so that the float function stays what it was: backwards from a value into
// the constants that make it.
//
//   x_c -> x_c / s_c     by dividing constants: a normalization's scale and bias, the output channels of a
//                        Conv, Gemm or MatMul and what is added behind them, a constant row that is
//                        multiplied
//
// On the way back the factor passes what commutes with it, channel by channel: Relu, LeakyRelu, pooling,
// means over other axes, Reshape, Transpose, Slice, Split, Concat and their like (each keeps track of which
// element has which channel, so v -> o through the heads of an attention is found), the product behind a
// Softmax, one side of a gate. Clip (ReLU6) commutes only when its limits become one a channel: Clip(x, 0, 6)
// is written as Min(Relu(x), 6 / s), if `clips` says so. Gelu, Sigmoid, HardSwish do not commute: such a
// value needs a Mul of its own. Every value on the way must be read by nobody else, except by readers that
// see none of the scaled elements (the slice that takes q out of q/k/v).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ir/graph.h"
#include "quant/transform/channel_map.h"

namespace pare::quant {

struct FoldEdit {
  NodeId node = NodeId::kNone;
  int slot = 0;         // the constant input that is divided
  ChannelMap map;       // broadcast against the constant
  bool limits = false;  // the node is a Clip whose limits become rows
  bool weight = false;  // the constant is the weight of a linear node
};

struct ChannelFold {
  std::vector<FoldEdit> edits;
  std::vector<ValueId> changed;  // values that are x_c / s_c afterwards, x first
};

// True when the factor of `value` along `axis` can go into constants. `readers` are the uses that will see
// the scaled value and undo it: all other users make it impossible. Within one graph, never across the border
// of a subgraph.
bool find_channel_fold(const Graph& graph, ValueId value, int axis, std::int64_t channels,
                       const std::vector<NodeId>& readers, bool clips, ChannelFold& fold);

// Divides; shared constants get copies. s > 0, one a channel.
void apply_channel_fold(Graph& graph, const ChannelFold& fold, const std::vector<float>& s);

}  // namespace pare::quant
