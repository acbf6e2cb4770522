#include "tests/unit/quant/build_graph.h"

#include <random>

#include "engine/ir/schema.h"

namespace pare::quant::test {
namespace {

Tensor random_weight(Dims dims, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, 0.25f);
  std::vector<float> values(static_cast<std::size_t>(element_count(dims)));
  for (float& v : values) v = normal(rng);
  return Tensor::from(DType::kF32, std::move(dims), values);
}

ValueId output(Graph& graph, const char* value_name) {
  Value value;
  value.name = value_name;
  value.dtype = DType::kF32;
  return graph.add_value(value);
}

ValueId add(Graph& graph, const char* op, const char* result, std::vector<ValueId> in,
            Attributes attrs = {}) {
  Node node;
  node.op = op;
  node.name = std::string("node_") + result;
  node.in = std::move(in);
  node.out = {output(graph, result)};
  node.attrs = std::move(attrs);
  const ValueId out = node.out[0];
  graph.add_node(std::move(node));
  return out;
}

}  // namespace

Graph residual_block() {
  Graph g;
  g.opset = 17;
  Value input;
  input.name = "x";
  input.dtype = DType::kF32;
  input.shape = Shape({Dim::named("batch"), Dim::of(8), Dim::of(6), Dim::of(6)});
  const ValueId x = g.add_value(input);
  g.inputs = {x};
  const Attributes same = {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}};
  const ValueId w1 = g.add_constant("w1", random_weight({16, 8, 3, 3}, 1));
  const ValueId b1 = g.add_constant("b1", random_weight({16}, 2));
  const ValueId w2 = g.add_constant("w2", random_weight({16, 16, 3, 3}, 3));
  const ValueId ws = g.add_constant("ws", random_weight({16, 8, 1, 1}, 4));
  const ValueId wf = g.add_constant("wf", random_weight({5, 16}, 5));
  const ValueId bf = g.add_constant("bf", random_weight({5}, 6));
  const ValueId conv1 = add(g, "Conv", "conv1", {x, w1, b1}, same);
  const ValueId relu1 = add(g, "Relu", "relu1", {conv1});
  const ValueId conv2 = add(g, "Conv", "conv2", {relu1, w2}, same);
  const ValueId shortcut = add(g, "Conv", "shortcut", {x, ws});
  const ValueId sum = add(g, "Add", "sum", {conv2, shortcut});
  const ValueId relu2 = add(g, "Relu", "relu2", {sum});
  const ValueId pooled = add(g, "GlobalAveragePool", "pooled", {relu2});
  const ValueId flat = add(g, "Flatten", "flat", {pooled}, {{"axis", std::int64_t{1}}});
  const ValueId y = add(g, "Gemm", "y", {flat, wf, bf}, {{"transB", std::int64_t{1}}});
  g.outputs = {y};
  infer_shapes(g);
  verify(g);
  return g;
}

Placement placement_in(const Graph& graph, Target target, const char* scheme) {
  const Scheme& formats = scheme_from_name(scheme);
  Spec spec;
  spec.target = target;
  spec.activations.symmetric = formats.activations.symmetric;
  spec.activations.dtype = formats.activations.symmetric ? DType::kI8 : formats.activations.dtype;
  Placement placement = place(graph, spec);
  for (ActivationSite& site : placement.activations) site.format = formats.activations;
  for (WeightSite& site : placement.weights) site.format = formats.weights;
  if (formats.weights.dtype != DType::kI8) placement.biases.clear();
  return placement;
}

}  // namespace pare::quant::test
