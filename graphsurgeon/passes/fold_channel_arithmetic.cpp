#include "graphsurgeon/passes/channel_weights.h"
#include "graphsurgeon/passes/passes.h"

namespace pare {
namespace {

// One number a channel out of a constant that broadcasts against the output: its sizes are 1 but for the
// channel axis, and it does not raise the rank.
bool per_channel(const Tensor& tensor, int rank, std::int64_t channels, std::vector<double>& out) {
  const auto own = static_cast<int>(tensor.dims().size());
  if (own > rank || !to_doubles(tensor, out)) return false;
  for (int i = 0; i < own; ++i) {
    const bool channel_axis = i + rank - own == 1;
    const std::int64_t size = tensor.dims()[static_cast<std::size_t>(i)];
    if (size != 1 && !(channel_axis && size == channels)) return false;
  }
  if (out.size() == 1) out.assign(static_cast<std::size_t>(channels), out[0]);
  return out.size() == static_cast<std::size_t>(channels);
}

// y = x * scale + shift for `x op c` or `c op x`.
bool affine(const Node& node, bool constant_first, const std::vector<double>& c, ChannelAffine& m) {
  const std::size_t n = c.size();
  m.scale.assign(n, 1.0);
  m.shift.assign(n, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    if (node.is("Mul")) m.scale[i] = c[i];
    if (node.is("Div")) m.scale[i] = 1.0 / c[i];
    if (node.is("Add")) m.shift[i] = c[i];
    if (node.is("Sub")) {
      m.scale[i] = constant_first ? -1.0 : 1.0;
      m.shift[i] = constant_first ? c[i] : -c[i];
    }
  }
  return !(node.is("Div") && constant_first);
}

bool match(const Graph& graph, NodeId id, ChannelAffine& found) {
  const Node& node = graph.node(id);
  if (!node.is("Mul") && !node.is("Div") && !node.is("Add") && !node.is("Sub")) return false;
  if (node.in.size() != 2) return false;
  const bool constant_first = graph.is_constant(node.in[0]);
  const ValueId x = node.in[constant_first ? 1 : 0], c = node.in[constant_first ? 0 : 1];
  if (!graph.is_constant(c) || graph.is_constant(x)) return false;
  const NodeId weighted = graph.producer(x);
  if (weighted == NodeId::kNone || graph.only_user(x) != id) return false;
  if (!read_channel_weights(graph, weighted, found.weights)) return false;
  const Node& owner = graph.node(weighted);
  const int rank = owner.is("Gemm") ? 2 : static_cast<int>(found.weights.weight_dims.size());
  const Tensor& constant = graph.value(c).constant;
  std::vector<double> values;
  if (constant.dtype() != found.weights.dtype) return false;
  return per_channel(constant, rank, found.weights.channels, values) &&
         affine(node, constant_first, values, found);
}

int fold_channel_arithmetic(Graph& graph, PassContext& context) { return fold_affine(graph, context, match); }

}  // namespace

const Pass kFoldChannelArithmetic = {
    "fold_channel_arithmetic",
    "fold a constant factor or summand a channel into the Conv, ConvTranspose or Gemm before it",
    fold_channel_arithmetic};

}  // namespace pare
