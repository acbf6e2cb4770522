// Edits keep use lists, order and names; verify() notices what they must not break.
#include "engine/ir/graph.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace pare {
namespace {

ValueId add_float(Graph& graph, const char* value_name) {
  Value value;
  value.name = value_name;
  value.dtype = DType::kF32;
  value.shape = Shape({Dim::named("n"), Dim::of(3)});
  return graph.add_value(value);
}

Node unary(const char* op, ValueId in, ValueId out) {
  Node node;
  node.op = op;
  node.name = std::string(op) + "_node";
  node.in = {in};
  node.out = {out};
  return node;
}

TEST(Graph, InsertRemoveAndReplaceKeepUsesAndOrder) {
  Graph g;
  const ValueId x = add_float(g, "x"), y = add_float(g, "y"), z = add_float(g, "z"), w = add_float(g, "w");
  g.inputs = {x};
  const NodeId relu = g.add_node(unary("Relu", x, y));
  const NodeId tanh = g.add_node(unary("Tanh", y, z));
  g.outputs = {z, z};
  EXPECT_EQ(g.only_user(y), tanh);
  EXPECT_EQ(g.only_user(z), NodeId::kNone);

  const NodeId between = g.insert_before(tanh, unary("Sigmoid", y, w));
  g.set_input(tanh, 0, w);
  EXPECT_EQ(g.nodes(), (std::vector<NodeId>{relu, between, tanh}));
  ASSERT_EQ(g.users(y).size(), 1u);
  EXPECT_EQ(g.users(y)[0].node, between);

  g.replace_uses(z, w);
  EXPECT_EQ(g.outputs, (std::vector<ValueId>{w, w}));
  g.remove_node(tanh);
  EXPECT_EQ(g.node_count(), 2u);
  EXPECT_EQ(g.producer(z), NodeId::kNone);
  EXPECT_EQ(g.nodes(), (std::vector<NodeId>{relu, between}));
}

TEST(Graph, SortIsStableAndFindsCycles) {
  Graph g;
  const ValueId x = add_float(g, "x"), y = add_float(g, "y"), z = add_float(g, "z");
  g.inputs = {x};
  const NodeId second = g.add_node(unary("Tanh", y, z));
  const NodeId first = g.add_node(unary("Relu", x, y));
  g.sort();
  EXPECT_EQ(g.nodes(), (std::vector<NodeId>{first, second}));
  g.set_input(first, 0, z);
  EXPECT_THROW(g.sort(), Error);
}

TEST(Graph, NamesStayUnique) {
  Graph g;
  const ValueId a = add_float(g, "v"), b = add_float(g, "v");
  EXPECT_EQ(g.value(b).name, "v_1");
  EXPECT_EQ(g.find_value("v"), a);
  g.rename(a, "v_1");
  EXPECT_EQ(g.value(a).name, "v_1_1");
  EXPECT_EQ(g.find_value("v"), ValueId::kNone);
}

TEST(Graph, ACopyIsIndependent) {
  Graph g;
  const ValueId x = add_float(g, "x"), y = add_float(g, "y");
  g.inputs = {x};
  g.outputs = {y};
  const NodeId relu = g.add_node(unary("Relu", x, y));
  Graph copy = g;
  copy.node(relu).op = "Tanh";
  copy.rename(x, "renamed");
  EXPECT_EQ(g.node(relu).op, "Relu");
  EXPECT_EQ(g.value(x).name, "x");
  EXPECT_NE(to_text(g), to_text(copy));
}

TEST(Graph, AttributesOfTheWrongTypeAreBadFiles) {
  Node node;
  node.op = "Softmax";
  node.attrs["axis"] = 1.5f;
  try {
    node.attr("axis", std::int64_t{-1});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadFile);
  }
}

}  // namespace
}  // namespace pare
