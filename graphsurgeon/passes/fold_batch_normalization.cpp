#include <cmath>

#include "graphsurgeon/passes/channel_weights.h"
#include "graphsurgeon/passes/passes.h"

namespace pare {
namespace {

bool read_parameter(const Graph& graph, const Node& node, std::size_t slot, std::size_t channels,
                    std::vector<double>& out) {
  const ValueId id = input_of(node, slot);
  return graph.is_constant(id) && to_doubles(graph.value(id).constant, out) && out.size() == channels;
}

bool match(const Graph& graph, NodeId id, ChannelAffine& found) {
  const Node& node = graph.node(id);
  if (!node.is("BatchNormalization") || node.out.size() != 1) return false;
  if (node.attr("training_mode", std::int64_t{0}) != 0) return false;
  const NodeId weighted = graph.producer(node.in[0]);
  if (weighted == NodeId::kNone || graph.only_user(node.in[0]) != id) return false;
  if (!read_channel_weights(graph, weighted, found.weights)) return false;
  const auto channels = static_cast<std::size_t>(found.weights.channels);
  std::vector<double> gamma, beta, mean, variance;
  if (!read_parameter(graph, node, 1, channels, gamma) || !read_parameter(graph, node, 2, channels, beta) ||
      !read_parameter(graph, node, 3, channels, mean) || !read_parameter(graph, node, 4, channels, variance))
    return false;
  const double epsilon = static_cast<double>(node.attr("epsilon", 1e-5f));
  found.scale.resize(channels);
  found.shift.resize(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    found.scale[c] = gamma[c] / std::sqrt(variance[c] + epsilon);
    found.shift[c] = beta[c] - mean[c] * found.scale[c];
  }
  return true;
}

int fold_batch_normalization(Graph& graph, PassContext& context) {
  return fold_affine(graph, context, match);
}

}  // namespace

const Pass kFoldBatchNormalization = {
    "fold_batch_normalization", "fold BatchNormalization into the Conv, ConvTranspose or Gemm before it",
    fold_batch_normalization};

}  // namespace pare
