// The weighted nodes whose output channels can be scaled and shifted by changing constants.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ir/graph.h"
#include "graphsurgeon/passes/pass.h"

namespace pare {

// Conv, ConvTranspose or Gemm with a constant weight and a constant or absent bias, as doubles.
struct ChannelWeights {
  NodeId node = NodeId::kNone;
  DType dtype = DType::kUndefined;
  Dims weight_dims;
  std::int64_t channels = 0;
  std::vector<double> weight;
  std::vector<double> bias;  // one a channel; zeros when the node has none. Gemm: beta is in it
};

// False when the node is another operator, its constants are not constant or not floats, or the shapes do not
// fit.
bool read_channel_weights(const Graph& graph, NodeId id, ChannelWeights& out);

// The output channel of the weight's element `index`.
std::int64_t channel_of(const Graph& graph, const ChannelWeights& w, std::int64_t index);

// weight *= scale[channel], bias = bias * scale[channel] + shift[channel], written into the node as new
// constants. False, and nothing is changed, when a number would not be finite.
bool scale_and_shift(Graph& graph, ChannelWeights w, const std::vector<double>& scale,
                     const std::vector<double>& shift);

// Takes `id`, whose input is the weighted node's output, out: the weighted node gives its result.
void absorb(Graph& graph, NodeId weighted, NodeId id);

// What a node does to the output of the layer with these weights: y = x * scale[c] + shift[c].
struct ChannelAffine {
  ChannelWeights weights;
  std::vector<double> scale, shift;
};
// Folds every node that `match` takes into the layer before it; how many.
int fold_affine(Graph& graph, PassContext& context, bool (*match)(const Graph&, NodeId, ChannelAffine&));

}  // namespace pare
