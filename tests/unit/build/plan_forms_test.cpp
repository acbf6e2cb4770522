// Operators that a plan writes by others compute what they did.
//
// Tolerance as in engine_plan_test.cpp: float32 plans differ by the order of sums (Resize also rounds between
// its axes, 2^-24 each), 80 dB; float16 rounds every stored value to 2^-12 relative at most. An LSTM stores
// its state at each of 5 steps, errors pass through gates whose derivatives stay below 1: 5 * 4 roundings as
// squares are 59 dB, 45 asked for.
#include "engine/build/plan/plan_forms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/base/error.h"
#include "engine/build/plan/make_plan.h"
#include "engine/build/plan/plan_reference.h"
#include "engine/ir/schema.h"
#include "engine/run/session.h"
#include "tests/unit/build/add_op.h"

namespace pare {
namespace {

Tensor normal_values(const Dims& dims, unsigned seed) {
  Tensor t = Tensor::allocate(DType::kF32, dims);
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < t.size(); ++i) t.mut<float>()[i] = normal(rng);
  return t;
}

struct Net {
  Graph graph;
  int count = 0;
  ValueId input(const Dims& dims) {
    Value v;
    v.name = v.origin = "x" + std::to_string(graph.inputs.size());
    v.dtype = DType::kF32;
    v.shape = Shape(dims);
    graph.inputs.push_back(graph.add_value(v));
    return graph.inputs.back();
  }
  ValueId op(const char* name, std::vector<ValueId> in, Attributes attrs = {}) {
    return add_op(graph, name, ++count, std::move(in), std::move(attrs));
  }
  ValueId constant(Tensor t) { return graph.add_constant("c" + std::to_string(++count), std::move(t)); }
  ValueId normal(const Dims& dims) { return constant(normal_values(dims, static_cast<unsigned>(++count))); }
  ValueId ints(const std::vector<std::int64_t>& v) { return constant(Tensor::ints(v)); }
};

using Ints = std::vector<std::int64_t>;

double sqnr(const Tensor& want, const Tensor& got) {
  EXPECT_EQ(want.dims(), got.dims());
  double signal = 0, noise = 0;
  for (std::int64_t i = 0; i < want.size(); ++i) {
    const auto a = static_cast<double>(want.as<float>()[i]), d = a - static_cast<double>(got.as<float>()[i]);
    signal += a * a;
    noise += d * d;
  }
  return noise == 0 ? 999 : 10 * std::log10(signal / noise);
}

void expect_same(Net& net, const std::vector<ValueId>& outputs, const std::string& what) {
  SCOPED_TRACE(what);
  net.graph.outputs = outputs;
  infer_shapes(net.graph);
  std::vector<Tensor> inputs;
  for (const ValueId id : net.graph.inputs)
    inputs.push_back(normal_values(net.graph.value(id).shape.sizes(), 77));
  ThreadPool pool(2);
  Session session(std::make_shared<const Graph>(net.graph), {&pool, true, false});
  const std::vector<Tensor> want = session.run(inputs);
  for (const DType precision : {DType::kF32, DType::kF16}) {
    PlanOptions options;
    options.precision = precision;
    const std::vector<Tensor> got = run_plan_reference(make_plan(net.graph, options), inputs);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t o = 0; o < want.size(); ++o)
      EXPECT_GT(sqnr(want[o], got[o]), precision == DType::kF32 ? 80 : 45)
          << name(precision) << " output " << o;
  }
}

TEST(PlanForms, Resizing) {
  for (const char* mode : {"nearest", "linear", "cubic"})
    for (const char* coordinates : {"half_pixel", "asymmetric", "align_corners"})
      for (const auto& [h, w] : {std::pair<std::int64_t, std::int64_t>{10, 18}, {7, 4}, {5, 13}}) {
        Net net;
        const ValueId x = net.input({2, 3, 5, 6});
        const ValueId y = net.op(
            "Resize", {x, ValueId::kNone, ValueId::kNone, net.ints({2, 3, h, w})},
            {{"mode", std::string(mode)}, {"coordinate_transformation_mode", std::string(coordinates)}});
        expect_same(net, {y}, fmt::format("{} {} {}x{}", mode, coordinates, h, w));
      }
  // Between convolutions maps stay channels-last.
  Net net;
  const ValueId a =
      net.op("Conv", {net.input({1, 8, 6, 6}), net.normal({8, 8, 3, 3})}, {{"pads", Ints{1, 1, 1, 1}}});
  const ValueId big =
      net.op("Resize", {a, ValueId::kNone, net.constant(Tensor::from<float>(DType::kF32, {4}, {1, 1, 2, 2}))},
             {{"mode", std::string("linear")}});
  expect_same(net, {net.op("Conv", {big, net.normal({16, 8, 1, 1})})}, "between convolutions");
}

TEST(PlanForms, PoolsOfPlainMapsAndOfOneAxis) {
  for (const char* kind : {"MaxPool", "AveragePool"}) {
    const auto pool = [&](const Dims& x, Attributes attrs) {
      Net net;
      expect_same(net, {net.op(kind, {net.input(x)}, std::move(attrs))},
                  fmt::format("{} rank {}", kind, x.size()));
    };
    pool({2, 3, 9, 8}, {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}});
    pool({1, 4, 7, 7},
         {{"kernel_shape", Ints{2, 3}}, {"strides", Ints{2, 2}}, {"ceil_mode", std::int64_t{1}}});
    pool({2, 5, 31}, {{"kernel_shape", Ints{4}}, {"strides", Ints{3}}, {"pads", Ints{1, 2}}});
  }
  for (const char* kind : {"GlobalMaxPool", "GlobalAveragePool"})
    for (const Dims& x : {Dims{2, 8, 5, 3}, Dims{2, 8, 17}}) {
      if (x.size() == 3 && kind[6] == 'A') continue;  // no layer, and no model with one
      Net net;
      expect_same(net, {net.op(kind, {net.input(x)})}, fmt::format("{} rank {}", kind, x.size()));
    }
}

TEST(PlanForms, ReductionsOfAnyAxes) {
  for (const char* kind : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"})
    for (const Ints& axes : {Ints{0}, Ints{1}, Ints{-2}, Ints{0, 2}, Ints{1, 2, 3}, Ints{3}})
      for (const std::int64_t keep : {0, 1}) {
        Net net;
        const ValueId y =
            net.op(kind, {net.op("Tanh", {net.input({3, 4, 5, 6})}), net.ints(axes)}, {{"keepdims", keep}});
        expect_same(net, {net.op("Exp", {y})},
                    fmt::format("{} of {} axes, the first {}", kind, axes.size(), axes[0]));
      }
  Net all;
  expect_same(all, {all.op("ReduceMax", {all.input({3, 4, 5})})}, "every axis");
}

// A normalization written out, over an axis that is not the last: sums of squares pass what float16 holds
// (400^2 * 48 is 7.7e6), and the variance is a small difference of two large numbers (mean 300, deviation 30:
// 1 % of either).
TEST(PlanForms, StatisticsKeepTheirRange) {
  Net net;
  const ValueId x = net.op("Add", {net.op("Mul", {net.input({2, 48, 20}), net.constant(Tensor::scalar(30))}),
                                   net.constant(Tensor::scalar(300))});
  const ValueId n = net.constant(Tensor::scalar(48)), axes = net.ints({1});
  const auto mean = [&](ValueId v) { return net.op("Div", {net.op("ReduceSum", {v, axes}), n}); };
  const ValueId m = mean(x), square = mean(net.op("Mul", {x, x}));
  const ValueId variance = net.op("Sub", {square, net.op("Mul", {m, m})});
  const ValueId y = net.op("Div", {net.op("Sub", {x, m}), net.op("Sqrt", {variance})});
  net.graph.outputs = {net.op("Tanh", {y})};
  infer_shapes(net.graph);
  const std::vector<Tensor> inputs = {normal_values({2, 48, 20}, 7)};
  ThreadPool pool(1);
  Session session(std::make_shared<const Graph>(net.graph), {&pool, true, false});
  const Tensor want = session.run(inputs)[0];
  const EnginePlan plan = make_plan(net.graph);
  // x is stored in float16: 300 * 2^-12 of a deviation of 30 is 52 dB; through means of 48 of them 35 is
  // asked for.
  EXPECT_GT(sqnr(want, run_plan_reference(plan, inputs)[0]), 35) << to_text(plan);
  // What a product reads is stored as its operand.
  Net gate;
  const ValueId pooled =
      gate.op("ReduceMean", {gate.input({2, 16, 8, 8}), gate.ints({2, 3})}, {{"keepdims", std::int64_t{0}}});
  gate.graph.outputs = {gate.op("MatMul", {pooled, gate.normal({16, 4})})};
  infer_shapes(gate.graph);
  const EnginePlan small = make_plan(gate.graph);
  EXPECT_EQ(count_kernels(small), 2) << to_text(small);
}

TEST(PlanForms, Padding) {
  for (const char* mode : {"constant", "reflect", "edge", "wrap"})
    for (const Ints& pads : {Ints{0, 0, 2, 1, 0, 0, 3, 0}, Ints{0, 1, 0, 2, 0, 1, 0, 2}}) {
      Net net;
      std::vector<ValueId> in = {net.input({2, 3, 5, 6}), net.ints(pads)};
      if (std::string(mode) == "constant") in.push_back(net.constant(Tensor::scalar(-1.5F)));
      expect_same(net, {net.op("Pad", in, {{"mode", std::string(mode)}})}, mode);
    }
  Net some;  // of named axes
  expect_same(some,
              {some.op("Pad", {some.input({4, 7}), some.ints({3, 2}), ValueId::kNone, some.ints({-1})},
                       {{"mode", std::string("reflect")}})},
              "one axis");
}

TEST(PlanForms, ConvolutionsOfOneAxis) {
  for (const std::int64_t group : {1, 8}) {
    Net net;
    const ValueId y =
        net.op("Conv", {net.input({2, 8, 33}), net.normal({16, 8 / group, 5}), net.normal({16})},
               {{"strides", Ints{2}}, {"pads", Ints{2, 1}}, {"group", group}});
    expect_same(net, {net.op("Relu", {y})}, fmt::format("group {}", group));
  }
}

// Q/DQ around convolutions of one axis: each is a layer of codes with a row of its own, codes go from one to
// the next, and nothing but the first layer's input and the last one's output is reshaped.
TEST(PlanForms, QuantizedConvolutionsOfOneAxis) {
  Net net;
  const auto one = [&](float v) { return net.constant(Tensor::copy_of(DType::kF32, {}, &v, sizeof v)); };
  const auto zero = [&] {
    const std::int8_t none = 0;
    return net.constant(Tensor::copy_of(DType::kI8, {}, &none, 1));
  };
  const auto fake = [&](ValueId x, float step) {
    const ValueId scale = one(step), at = zero();
    return net.op("DequantizeLinear", {net.op("QuantizeLinear", {x, scale, at}), scale, at});
  };
  const auto codes = [&](std::int64_t m, std::int64_t c, std::int64_t k) {
    Tensor w = Tensor::allocate(DType::kI8, {m, c, k}), step = Tensor::allocate(DType::kF32, {m});
    std::mt19937 rng(static_cast<unsigned>(m));
    for (std::int64_t i = 0; i < w.size(); ++i)
      w.mut<std::int8_t>()[i] = static_cast<std::int8_t>(static_cast<int>(rng() % 255) - 127);
    for (std::int64_t i = 0; i < m; ++i) step.mut<float>()[i] = 0.002F + 0.0001F * static_cast<float>(i);
    return net.op("DequantizeLinear", {net.constant(w), net.constant(step)}, {{"axis", std::int64_t{0}}});
  };
  const ValueId first =
      net.op("Conv", {fake(net.input({2, 16, 33}), 0.03F), codes(32, 16, 5), net.normal({32})},
             {{"pads", Ints{2, 2}}});
  const ValueId second =
      net.op("Conv", {fake(net.op("Relu", {first}), 0.05F), codes(16, 32, 3), net.normal({16})});
  net.graph.outputs = {second};
  infer_shapes(net.graph);
  PlanOptions options;
  options.precision = DType::kF32;
  const EnginePlan plan = make_plan(net.graph, options);
  ASSERT_EQ(plan.realized.size(), 2U);
  int convolutions = 0, others = 0;
  for (const PlanLayer& layer : plan.layers) {
    const bool product = layer.kind == LayerKind::kConv || layer.kind == LayerKind::kGemm;
    product ? ++convolutions : ++others;
    if (product) {
      EXPECT_EQ(layer.realized, "int8") << layer.name;
    }
  }
  EXPECT_EQ(convolutions, 2) << to_text(plan);
  EXPECT_LE(others, 3) << to_text(plan);  // the codes of the input, their layout, the layout of the output
  for (const Realized& row : plan.realized)
    EXPECT_NE(row.realized.find("kernel"), std::string::npos) << row.node;
  // Float32 behind exact sums of codes; a code that rounds otherwise would be 40 dB.
  const std::vector<Tensor> inputs = {normal_values({2, 16, 33}, 77)};
  ThreadPool pool(2);
  Session session(std::make_shared<const Graph>(net.graph), {&pool, true, false});
  EXPECT_GT(sqnr(session.run(inputs)[0], run_plan_reference(plan, inputs)[0]), 80);
}

TEST(PlanForms, TransposedConvolutionsThatOnlyMove) {
  Net net;
  const ValueId y =
      net.op("ConvTranspose", {net.input({2, 8, 5, 6}), net.normal({8, 3, 2, 3}), net.normal({3})},
             {{"strides", Ints{2, 3}}});
  expect_same(net, {net.op("Sigmoid", {y})}, "kernel 2x3");
  Net plain;
  expect_same(plain,
              {plain.op("ConvTranspose", {plain.input({1, 8, 4, 4}), plain.normal({8, 16, 2, 2})},
                        {{"strides", Ints{2, 2}}})},
              "without a bias");
  Net overlapping;  // pixels that overlap would have to be summed
  overlapping.graph.outputs = {
      overlapping.op("ConvTranspose", {overlapping.input({1, 8, 4, 4}), overlapping.normal({8, 4, 3, 3})},
                     {{"strides", Ints{2, 2}}})};
  infer_shapes(overlapping.graph);
  EXPECT_THROW(make_plan(overlapping.graph), Error);
}

// Codes of its weights stay codes: an int8 layer of 4 times as many channels, a step each.
TEST(PlanForms, QuantizedTransposedConvolutions) {
  Net net;
  const float step = 0.03F;
  const std::int8_t none = 0;
  const ValueId scale = net.constant(Tensor::copy_of(DType::kF32, {}, &step, sizeof step)),
                zero = net.constant(Tensor::copy_of(DType::kI8, {}, &none, 1));
  const ValueId x = net.op("DequantizeLinear",
                           {net.op("QuantizeLinear", {net.input({2, 16, 5, 6}), scale, zero}), scale, zero});
  Tensor w = Tensor::allocate(DType::kI8, {16, 24, 2, 2}), steps = Tensor::allocate(DType::kF32, {24});
  std::mt19937 rng(3);
  for (std::int64_t i = 0; i < w.size(); ++i)
    w.mut<std::int8_t>()[i] = static_cast<std::int8_t>(static_cast<int>(rng() % 255) - 127);
  for (std::int64_t i = 0; i < 24; ++i) steps.mut<float>()[i] = 0.001F * static_cast<float>(i + 1);
  const ValueId weight =
      net.op("DequantizeLinear", {net.constant(w), net.constant(steps)}, {{"axis", std::int64_t{1}}});
  net.graph.outputs = {net.op("ConvTranspose", {x, weight, net.normal({24})}, {{"strides", Ints{2, 2}}})};
  infer_shapes(net.graph);
  PlanOptions options;
  options.precision = DType::kF32;
  const EnginePlan plan = make_plan(net.graph, options);
  ASSERT_EQ(plan.realized.size(), 1U);
  EXPECT_EQ(plan.realized[0].requested, "int8 x int8");
  EXPECT_NE(plan.realized[0].realized.find("kernel"), std::string::npos) << plan.realized[0].why;
  const std::vector<Tensor> inputs = {normal_values({2, 16, 5, 6}, 77)};
  ThreadPool pool(2);
  Session session(std::make_shared<const Graph>(net.graph), {&pool, true, false});
  EXPECT_GT(sqnr(session.run(inputs)[0], run_plan_reference(plan, inputs)[0]), 80);
}

TEST(PlanForms, LstmStepByStep) {
  for (const bool bias : {true, false}) {
    Net net;
    const ValueId x = net.input({5, 2, 12}), h = net.input({1, 2, 16}), c = net.input({1, 2, 16});
    Attributes attrs{{"hidden_size", std::int64_t{16}}};
    Node node;
    node.op = "LSTM";
    node.name = "cell";
    node.in = {x, net.constant(normal_values({1, 64, 12}, 1)), net.constant(normal_values({1, 64, 16}, 2))};
    if (bias) node.in.push_back(net.constant(normal_values({1, 128}, 3)));
    if (bias) node.in.insert(node.in.end(), {ValueId::kNone, h, c});
    node.attrs = attrs;
    for (const char* out : {"all", "last", "cells"}) {
      Value v;
      v.name = out;
      node.out.push_back(net.graph.add_value(v));
    }
    const std::vector<ValueId> outputs = node.out;
    net.graph.add_node(std::move(node));
    if (!bias) net.graph.inputs.resize(1);
    expect_same(net, outputs, bias ? "with bias and states" : "from zeros");
  }
}

}  // namespace
}  // namespace pare
