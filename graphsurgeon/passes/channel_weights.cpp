#include "graphsurgeon/passes/channel_weights.h"

#include "graphsurgeon/passes/edit.h"

namespace pare {
namespace {

bool transposed(const Node& node) { return node.attr("transB", std::int64_t{0}) != 0; }

std::int64_t channels_of(const Node& node, const Dims& dims) {
  if (node.is("Conv") && dims.size() >= 3) return dims[0];
  if (node.is("ConvTranspose") && dims.size() >= 3) return dims[1] * node.attr("group", std::int64_t{1});
  if (node.is("Gemm") && dims.size() == 2) return transposed(node) ? dims[0] : dims[1];
  return 0;
}

// One number a channel out of a bias of [C], [1,C], [1] or [].
bool read_bias(const Tensor& tensor, std::int64_t channels, std::vector<double>& bias) {
  std::vector<double> values;
  if (!to_doubles(tensor, values)) return false;
  const bool row = tensor.dims().empty() || tensor.dims().back() == tensor.size();
  const auto n = static_cast<std::size_t>(channels);
  if (values.size() == 1) values.assign(n, values[0]);
  if (!row || values.size() != n) return false;
  bias = std::move(values);
  return true;
}

}  // namespace

bool read_channel_weights(const Graph& graph, NodeId id, ChannelWeights& out) {
  const Node& node = graph.node(id);
  if (!node.is("Conv") && !node.is("ConvTranspose") && !node.is("Gemm")) return false;
  if (!graph.is_constant(input_of(node, 1))) return false;
  const Tensor& weight = graph.value(node.in[1]).constant;
  out.node = id;
  out.dtype = weight.dtype();
  out.weight_dims = weight.dims();
  out.channels = channels_of(node, weight.dims());
  if (out.channels <= 0 || weight.size() == 0 || weight.size() % out.channels != 0) return false;
  if (!to_doubles(weight, out.weight)) return false;
  out.bias.assign(static_cast<std::size_t>(out.channels), 0.0);
  const ValueId bias = input_of(node, 2);
  if (bias == ValueId::kNone) return true;
  if (!graph.is_constant(bias) || graph.value(bias).dtype != out.dtype) return false;
  if (!read_bias(graph.value(bias).constant, out.channels, out.bias)) return false;
  const double beta = node.is("Gemm") ? static_cast<double>(node.attr("beta", 1.0f)) : 1.0;
  for (double& b : out.bias) b *= beta;
  return true;
}

std::int64_t channel_of(const Graph& graph, const ChannelWeights& w, std::int64_t index) {
  const Node& node = graph.node(w.node);
  const Dims& dims = w.weight_dims;
  if (node.is("Gemm")) return transposed(node) ? index / dims[1] : index % dims[1];
  const std::int64_t per_first = static_cast<std::int64_t>(w.weight.size()) / dims[0];
  if (node.is("Conv")) return index / per_first;
  // ConvTranspose: [in, out / group, ...]; the inputs of a group feed its own outputs.
  const std::int64_t in = index / per_first, within = index % per_first;
  const std::int64_t inputs_per_group = dims[0] / node.attr("group", std::int64_t{1});
  return in / inputs_per_group * dims[1] + within / (per_first / dims[1]);
}

bool scale_and_shift(Graph& graph, ChannelWeights w, const std::vector<double>& scale,
                     const std::vector<double>& shift) {
  for (std::size_t i = 0; i < w.weight.size(); ++i)
    w.weight[i] *= scale[static_cast<std::size_t>(channel_of(graph, w, static_cast<std::int64_t>(i)))];
  for (std::size_t c = 0; c < w.bias.size(); ++c) w.bias[c] = w.bias[c] * scale[c] + shift[c];
  Tensor weight, bias;
  if (!from_doubles(w.dtype, w.weight_dims, w.weight, weight)) return false;
  if (!from_doubles(w.dtype, {w.channels}, w.bias, bias)) return false;
  const ValueId old_weight = graph.node(w.node).in[1], old_bias = input_of(graph.node(w.node), 2);
  const std::string bias_name = graph.value(old_weight).name + "_bias";
  graph.set_input(w.node, 1, replacement_constant(graph, old_weight, "", std::move(weight)));
  graph.set_input(w.node, 2, replacement_constant(graph, old_bias, bias_name, std::move(bias)));
  if (graph.node(w.node).is("Gemm")) graph.node(w.node).attrs.erase("beta");
  return true;
}

void absorb(Graph& graph, NodeId weighted, NodeId id) {
  const ValueId result = graph.node(id).out[0];
  graph.remove_node(id);
  graph.set_output(weighted, 0, result);
}

int fold_affine(Graph& graph, PassContext& context, bool (*match)(const Graph&, NodeId, ChannelAffine&)) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    ChannelAffine found;
    if (!match(graph, id, found)) continue;
    if (!context.may_change(graph, id)) break;
    const NodeId weighted = found.weights.node;
    if (!scale_and_shift(graph, std::move(found.weights), found.scale, found.shift)) continue;
    absorb(graph, weighted, id);
    ++count;
  }
  return count;
}

}  // namespace pare
