// Shapes of the operators that lowering makes: channels-last maps, transposed products, types of codes.
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/ir/schema.h"

namespace pare {
namespace {

using Ints = std::vector<std::int64_t>;

struct Case {
  const char* op;
  std::vector<Shape> in;
  Attributes attrs;
  const char* want;
};

Shape shape(std::vector<Dim> dims) { return Shape(std::move(dims)); }
Dim d(std::int64_t v) { return Dim::of(v); }

TEST(PareSchemas, Shapes) {
  const Dim n = Dim::named("n");
  const Case cases[] = {
      {"Conv",
       {shape({n, d(28), d(14), d(8)}), shape({d(16), d(8), d(3), d(3)})},
       {{"strides", Ints{2, 1}}, {"pads", Ints{1, 1, 1, 1}}},
       "[n,14,14,16]"},
      {"Conv",
       {shape({n, d(7), d(7), d(8)}), shape({d(8), d(1), d(5), d(5)})},
       {{"group", std::int64_t{8}}},
       "[n,3,3,8]"},
      {"MatMul", {shape({n, d(50), d(32)}), shape({d(32), d(7)})}, {}, "[n,50,7]"},
      {"MatMul",
       {shape({n, d(6), d(50), d(32)}), shape({n, d(6), d(40), d(32)})},
       {{"trans_b", std::int64_t{1}}},
       "[n,6,50,40]"},
      {"MaxPool",
       {shape({n, d(7), d(9), d(5)})},
       {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"ceil_mode", std::int64_t{1}}},
       "[n,3,4,5]"},
      {"AveragePool", {shape({n, d(8), d(5)})}, {{"kernel_shape", Ints{2}}, {"strides", Ints{2}}}, "[n,4,5]"},
      {"GlobalAveragePool", {shape({n, d(8), d(9), d(5)})}, {}, "[n,1,1,5]"},
      {"ToChannelsLast", {shape({n, d(5), d(8), d(9)})}, {}, "[n,8,9,5]"},
      {"ToPlain", {shape({n, d(8), d(9), d(5)})}, {}, "[n,5,8,9]"},
      {"ToPlain", {shape({n, d(8), d(5)})}, {}, "[n,5,8]"},
  };
  for (const Case& c : cases) {
    Graph graph;
    Node node;
    node.domain = "pare";
    node.op = c.op;
    node.attrs = c.attrs;
    for (const Shape& s : c.in) {
      Value value;
      value.name = "x";
      value.dtype = DType::kF32;
      value.shape = s;
      graph.inputs.push_back(graph.add_value(value));
      node.in.push_back(graph.inputs.back());
    }
    Value out;
    out.name = "y";
    node.out = {graph.add_value(out)};
    graph.outputs = node.out;
    graph.add_node(node);
    infer_shapes(graph);
    EXPECT_EQ(to_string(graph.value(graph.outputs[0]).shape), c.want) << c.op;
    EXPECT_EQ(graph.value(graph.outputs[0]).dtype, DType::kF32) << c.op;
  }
}

TEST(PareSchemas, WeightsThatDoNotFitAreRefused) {
  Graph graph;
  Node node;
  node.domain = "pare";
  node.op = "Conv";
  for (const Shape& s : {shape({d(1), d(7), d(7), d(8)}), shape({d(8), d(5), d(3), d(3)})}) {
    Value value;
    value.name = "x";
    value.dtype = DType::kF32;
    value.shape = s;
    graph.inputs.push_back(graph.add_value(value));
    node.in.push_back(graph.inputs.back());
  }
  Value out;
  out.name = "y";
  node.out = {graph.add_value(out)};
  graph.outputs = node.out;
  graph.add_node(node);
  EXPECT_THROW(infer_shapes(graph), Error);
}

}  // namespace
}  // namespace pare
