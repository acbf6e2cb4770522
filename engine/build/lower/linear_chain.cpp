#include "engine/build/lower/linear_chain.h"

#include <cmath>
#include <limits>
#include <optional>

namespace pare::lowering {
namespace {

std::optional<float> scalar_constant(const Graph& graph, ValueId id) {
  if (!graph.is_constant(id)) return std::nullopt;
  const Tensor& tensor = graph.value(id).constant;
  if (tensor.dtype() != DType::kF32 || tensor.size() != 1) return std::nullopt;
  return *tensor.as<float>();
}

std::vector<std::int64_t> or_default(std::vector<std::int64_t> values, std::size_t count,
                                     std::int64_t value) {
  if (values.empty()) values.assign(count, value);
  return values;
}

}  // namespace

bool as_activation(const Graph& graph, const Node& node, Chain& chain) {
  if (node.is("Relu") || node.is("HardSwish") || node.is("Sigmoid")) {
    chain.activation = node.op;
    return true;
  }
  if (node.is("Tanh") || (node.is("Swish") && node.attr("alpha", 1.0f) == 1.0f)) {
    chain.activation = node.is("Tanh") ? "Tanh" : "Silu";
    return true;
  }
  if (node.is("HardSigmoid")) {
    chain.activation = node.op;
    chain.activation_attrs["activation_alpha"] = node.attr("alpha", 0.2f);
    chain.activation_attrs["activation_beta"] = node.attr("beta", 0.5f);
    return true;
  }
  if (node.is("Gelu") && node.attr("approximate", "none") == "none") {
    chain.activation = "Gelu";
    return true;
  }
  if (node.is("Clip")) {
    float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();
    for (std::size_t i = 1; i < node.in.size(); ++i) {
      if (node.in[i] == ValueId::kNone) continue;
      const std::optional<float> bound = scalar_constant(graph, node.in[i]);
      if (!bound || std::isnan(*bound)) return false;
      (i == 1 ? low : high) = *bound;
    }
    chain.activation = "Clip";
    chain.activation_attrs["clip_min"] = low;
    chain.activation_attrs["clip_max"] = high;
    return true;
  }
  return false;
}

bool same_shape(const Graph& graph, ValueId a, ValueId b) {
  const Shape &x = graph.value(a).shape, &y = graph.value(b).shape;
  if (!x.ranked || !y.ranked || x.dims.size() != y.dims.size()) return false;
  for (std::size_t i = 0; i < x.dims.size(); ++i)
    if (!x.dims[i].same(y.dims[i])) return false;
  return true;
}

std::int64_t result_width(const Graph& graph, const Node& node) {
  const Shape& shape = graph.value(node.out[0]).shape;
  return shape.ranked && !shape.dims.empty() && shape.dims.back().known() ? shape.dims.back().value : -1;
}

bool is_row_vector(const Graph& graph, ValueId id, std::int64_t width) {
  if (!graph.is_constant(id)) return false;
  const Tensor& t = graph.value(id).constant;
  return t.dtype() == DType::kF32 && t.size() == width && !t.dims().empty() && t.dims().back() == width;
}

Chain follow_chain(const Graph& graph, NodeId start, const Kept& kept) {
  Chain chain;
  chain.linear = start;
  chain.nodes = {start};
  const Node& linear = graph.node(start);
  chain.result = linear.out[0];
  const bool coded = linear.is("pare", "WMatMul"), product = coded || linear.is("MatMul");
  if (!product && linear.in.size() > 2) chain.bias = linear.in[2];
  if (coded && linear.in.size() > 4) chain.bias = linear.in[4];
  const std::int64_t width =
      linear.is("Conv") || linear.is("ConvTranspose") ? -1 : result_width(graph, linear);
  while (chain.activation.empty()) {
    const NodeId next_id = graph.only_user(chain.result);
    if (next_id == NodeId::kNone || kept(chain.result)) break;
    const Node& next = graph.node(next_id);
    if (next.is("Add")) {
      const ValueId other = next.in[0] == chain.result ? next.in[1] : next.in[0];
      if (other == chain.result) break;
      if (product && chain.bias == ValueId::kNone && chain.residual == ValueId::kNone &&
          is_row_vector(graph, other, width) && graph.value(other).constant.dims().size() == 1) {
        chain.bias = other;
      } else if (chain.residual == ValueId::kNone && !graph.is_constant(other) &&
                 !linear.is("ConvTranspose") && same_shape(graph, chain.result, other)) {
        chain.residual = other;
      } else {
        break;
      }
    } else if (!as_activation(graph, next, chain)) {
      break;
    }
    chain.nodes.push_back(next_id);
    chain.result = next.out[0];
  }
  return chain;
}

void set_conv_attributes(const Graph& graph, const Node& conv, Node& fused) {
  const auto axes = static_cast<std::size_t>(graph.value(conv.in[0]).shape.rank() - 2);
  fused.attrs["strides"] = or_default(conv.attr_ints("strides"), axes, 1);
  fused.attrs["dilations"] = or_default(conv.attr_ints("dilations"), axes, 1);
  fused.attrs["pads"] = or_default(conv.attr_ints("pads"), 2 * axes, 0);
  fused.attrs["group"] = conv.attr("group", std::int64_t{1});
  if (conv.has_attr("output_padding")) fused.attrs["output_padding"] = conv.attr_ints("output_padding");
}

void replace_chain(Graph& graph, const Chain& chain, Node fused) {
  // The new node stands where the last one stood; its place is kept by inserting before removing, on a
  // value of its own until the old producer is gone.
  Value placeholder = graph.value(chain.result);
  placeholder.producer = NodeId::kNone;
  const ValueId temporary = graph.add_value(placeholder);
  fused.out = {temporary};
  const NodeId fused_id = graph.insert_before(chain.nodes.back(), std::move(fused));
  for (auto it = chain.nodes.rbegin(); it != chain.nodes.rend(); ++it) graph.remove_node(*it);
  graph.set_output(fused_id, 0, chain.result);
}

}  // namespace pare::lowering
