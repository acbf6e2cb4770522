// QLinearConv and QLinearMatMul through lowering: integer kernels, with the codes of the plain kernels.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "engine/build/lower/lower_cpu.h"
#include "engine/ir/schema.h"
#include "engine/run/session.h"

namespace pare {
namespace {

struct Case {
  const char* op;
  Dims x, w;
  DType x_type, w_type;
  bool per_channel, bias;
  Attributes attrs = {};
};

Tensor codes(DType type, Dims dims, std::uint32_t seed) {
  std::mt19937 rng(seed);
  Tensor t = Tensor::allocate(type, std::move(dims));
  for (std::int64_t i = 0; i < t.size(); ++i) t.mut<std::uint8_t>()[i] = static_cast<std::uint8_t>(rng());
  return t;
}

Graph graph_of(const Case& c) {
  Graph graph;
  const auto zero = [&](DType type, std::uint8_t code, std::int64_t n) {
    Tensor t = Tensor::allocate(type, n == 1 ? Dims{} : Dims{n});
    std::fill_n(t.mut<std::uint8_t>(), n, code);
    return graph.add_constant("zero", t);
  };
  Value x;
  x.name = "x";
  x.dtype = c.x_type;
  x.shape = Shape(c.x);
  const ValueId in = graph.add_value(x);
  graph.inputs = {in};
  const std::int64_t columns = c.op == std::string("QLinearConv") ? c.w[0] : c.w.back(),
                     scales = c.per_channel ? columns : 1;
  Tensor scale = Tensor::allocate(DType::kF32, c.per_channel ? Dims{scales} : Dims{});
  for (std::int64_t i = 0; i < scales; ++i) scale.mut<float>()[i] = 0.001F + 0.0003F * static_cast<float>(i);
  Node node;
  node.op = c.op;
  node.name = "n";
  node.attrs = c.attrs;
  node.in = {in,
             graph.add_constant("sx", Tensor::scalar(0.02F)),
             zero(c.x_type, 5, 1),
             graph.add_constant("w", codes(c.w_type, c.w, 2)),
             graph.add_constant("sw", scale),
             zero(c.w_type, c.w_type == DType::kU8 ? 128 : 0, scales),
             graph.add_constant("sy", Tensor::scalar(0.05F)),
             zero(DType::kU8, 100, 1)};
  if (c.bias) {
    Tensor bias = Tensor::allocate(DType::kI32, {columns});
    for (std::int64_t i = 0; i < columns; ++i)
      bias.mut<std::int32_t>()[i] = static_cast<std::int32_t>(4000 * i - 9000);
    node.in.push_back(graph.add_constant("bias", bias));
  }
  Value y;
  y.name = "y";
  node.out = {graph.add_value(y)};
  graph.outputs = node.out;
  graph.add_node(std::move(node));
  infer_shapes(graph);
  return graph;
}

std::vector<Tensor> run(std::shared_ptr<const Graph> graph, const Tensor& x) {
  ThreadPool pool(2);
  SessionOptions options;
  options.pool = &pool;
  Session session(std::move(graph), options);
  return session.run({x});
}

TEST(ExpandQLinear, IntegerKernelsGiveTheCodesOfThePlainOnes) {
  const Dims pads{1, 1, 1, 1};
  const Case kCases[] = {
      {"QLinearConv", {2, 6, 9, 8}, {8, 6, 3, 3}, DType::kU8, DType::kI8, true, true, {{"pads", pads}}},
      {"QLinearConv",
       {1, 8, 7, 7},
       {8, 1, 3, 3},
       DType::kI8,
       DType::kI8,
       true,
       false,
       {{"group", std::int64_t{8}}}},
      {"QLinearConv",
       {1, 3, 9, 9},
       {5, 3, 1, 1},
       DType::kU8,
       DType::kU8,
       false,
       true,
       {{"strides", Dims{2, 2}}}},
      {"QLinearMatMul", {4, 40}, {40, 9}, DType::kU8, DType::kI8, true, false},
      {"QLinearMatMul", {2, 3, 33}, {33, 17}, DType::kI8, DType::kU8, false, false},
  };
  for (const Case& c : kCases) {
    const auto source = std::make_shared<const Graph>(graph_of(c));
    const Tensor x = codes(c.x_type, c.x, 7);
    LowerOptions options;
    options.integer = true;
    const Lowered lowered = lower_for_cpu(*source, options);
    ASSERT_EQ(lowered.realized.size(), 1U);
    EXPECT_EQ(lowered.realized[0].why, "");
    for (const NodeId id : lowered.graph->nodes()) EXPECT_EQ(lowered.graph->node(id).domain, "pare");
    const std::vector<Tensor> want = run(source, x), got = run(lowered.graph, x);
    ASSERT_EQ(got[0].dtype(), want[0].dtype());
    ASSERT_EQ(got[0].dims(), want[0].dims());
    // The sums are the same whole numbers. What follows is two or three float32 roundings in another
    // order, 1.5e-7 of a value below 2^8: a code differs only where the exact value lies within 4e-5 of the
    // middle between two codes, which is expected of 8e-5 of the elements; the cases have 2,000.
    std::int64_t different = 0;
    for (std::int64_t i = 0; i < want[0].size(); ++i) {
      const int d = std::abs(want[0].as<std::uint8_t>()[i] - got[0].as<std::uint8_t>()[i]);
      ASSERT_LE(d, 1);
      different += d;
    }
    EXPECT_LE(different, 2) << c.op << " of " << want[0].size();
  }
}

TEST(ExpandQLinear, WhatIsComputedStaysAsItIs) {
  Case c{"QLinearMatMul", {4, 40}, {40, 9}, DType::kU8, DType::kI8, false, false};
  Graph graph = graph_of(c);
  Value scale;
  scale.name = "computed";
  scale.dtype = DType::kF32;
  scale.shape = Shape(Dims{});
  const ValueId id = graph.add_value(scale);
  graph.inputs.push_back(id);
  graph.set_input(graph.nodes()[0], 1, id);
  const Lowered lowered = lower_for_cpu(graph, {});
  EXPECT_EQ(lowered.graph->node(lowered.graph->nodes()[0]).op, "QLinearMatMul");
}

}  // namespace
}  // namespace pare
