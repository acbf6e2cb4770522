#include <optional>
#include <utility>

#include "graphsurgeon/passes/passes.h"
#include "graphsurgeon/passes/recognize.h"

namespace pare {
namespace {

struct Match {
  ValueId x = ValueId::kNone;
  int k = 0;  // axes
  double epsilon = 0;
  ValueId weight_value = ValueId::kNone, bias_value = ValueId::kNone;
  std::optional<Tensor> weight, bias;
};

// normalized = d / sqrt(mean(d^2) + epsilon), as Div or as a product with the inverse root; d.
ValueId normalized(const Graph& graph, ValueId id, Match& found) {
  const auto same_mean = [&](ValueId variance, ValueId d) {
    const ValueId squares = mean_of_last_axes(graph, variance, found.k);
    return squares != ValueId::kNone && square_of(graph, squares) == d;
  };
  if (const Node* div = made_by(graph, id, "Div"))
    if (same_mean(root_of(graph, div->in[1], false, found.epsilon), div->in[0])) return div->in[0];
  if (const Node* mul = made_by(graph, id, "Mul"))
    for (const ValueId d : mul->in)
      if (same_mean(root_of(graph, other_operand(*mul, d), true, found.epsilon), d)) return d;
  return ValueId::kNone;
}

// d = x - mean(x) over the same axes.
bool centred(const Graph& graph, ValueId d, Match& found) {
  const Node* sub = made_by(graph, d, "Sub");
  int k = 0;
  if (sub == nullptr || mean_of_last_axes(graph, sub->in[1], k) != sub->in[0] || k != found.k) return false;
  found.x = sub->in[0];
  return true;
}

// `id` is normalized * weight.
bool scaled(const Graph& graph, ValueId id, bool layer, Match& found) {
  const Node* mul = made_by(graph, id, "Mul");
  if (mul == nullptr) return false;
  for (const ValueId weight : mul->in) {
    if (!graph.is_constant(weight)) continue;
    const ValueId d = normalized(graph, other_operand(*mul, weight), found);
    if (d == ValueId::kNone) continue;
    if (layer && !centred(graph, d, found)) continue;
    if (!layer) found.x = d;
    found.weight_value = weight;
    found.weight = weight_of_last_axes(graph, weight, found.x, found.k);
    return found.weight.has_value();
  }
  return false;
}

bool shifted(const Graph& graph, const Node& add, Match& found) {
  if (!add.is("Add")) return false;
  for (const ValueId bias : add.in) {
    if (!graph.is_constant(bias) || !scaled(graph, other_operand(add, bias), true, found)) continue;
    found.bias_value = bias;
    found.bias = weight_of_last_axes(graph, bias, found.x, found.k);
    return found.bias.has_value();
  }
  return false;
}

ValueId constant_of(Graph& graph, ValueId old, const Tensor& tensor) {
  if (graph.value(old).constant.dims() == tensor.dims()) return old;
  return graph.add_constant(graph.value(old).name + "_flat", tensor);
}

void replace(Graph& graph, NodeId id, const char* op, const Match& found) {
  Node node;
  node.op = op;
  node.in = {found.x, constant_of(graph, found.weight_value, *found.weight)};
  if (found.bias) node.in.push_back(constant_of(graph, found.bias_value, *found.bias));
  node.attrs["axis"] = std::int64_t{-found.k};
  node.attrs["epsilon"] = static_cast<float>(found.epsilon);
  replace_node(graph, id, std::move(node));
}

int recognize_layer_normalization(Graph& graph, PassContext& context) {
  int count = 0;
  for (const bool with_bias : {true, false})  // the scaled value is part of the shifted one
    for (const NodeId id : graph.nodes()) {
      const Node& node = graph.node(id);
      if (!(with_bias ? node.is("Add") : node.is("Mul"))) continue;
      if (graph.users(node.out[0]).empty() && !graph.is_output(node.out[0])) continue;  // taken already
      Match found;
      if (with_bias ? !shifted(graph, node, found) : !scaled(graph, node.out[0], true, found)) continue;
      if (!context.may_change(graph, id)) return count;
      replace(graph, id, "LayerNormalization", found);
      ++count;
    }
  return count;
}

int recognize_rms_normalization(Graph& graph, PassContext& context) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    Match found;
    if (!graph.node(id).is("Mul") || !scaled(graph, graph.node(id).out[0], false, found)) continue;
    // The mean taken away first makes it the other one.
    if (centred(graph, found.x, found)) continue;
    if (!context.may_change(graph, id)) break;
    replace(graph, id, "RMSNormalization", found);
    ++count;
  }
  return count;
}

}  // namespace

const Pass kRecognizeLayerNormalization = {"recognize_layer_normalization",
                                           "make one LayerNormalization of the nodes that spell it out",
                                           recognize_layer_normalization};
const Pass kRecognizeRmsNormalization = {"recognize_rms_normalization",
                                         "make one RMSNormalization of the nodes that spell it out",
                                         recognize_rms_normalization};

}  // namespace pare
