// Layout moves and channels-last pools against their references and against values worked out by hand; plain
// Conv against pare.Conv's reference.
#include "engine/ops/conv/channels_last.h"

#include <gtest/gtest.h>

#include "tests/unit/ops/kernel_run.h"

namespace pare {
namespace {

using testing::Argument;
using testing::random_floats;
using testing::run_kernel;
using Ints = std::vector<std::int64_t>;

struct Case {
  const char* op;
  Dims x, y;
  Attributes attrs = {};
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.op << to_string(c.x); }

const Case kCases[] = {
    {"ToChannelsLast", {2, 3, 5, 7}, {2, 5, 7, 3}},
    {"ToChannelsLast", {1, 1, 28, 28}, {1, 28, 28, 1}},
    {"ToChannelsLast", {2, 70, 9}, {2, 9, 70}},
    {"ToChannelsLast", {1, 64, 16, 16}, {1, 16, 16, 64}},
    {"ToChannelsLast", {0, 4, 3, 3}, {0, 3, 3, 4}},
    {"ToChannelsLast", {2, 9, 2, 3, 4}, {2, 2, 3, 4, 9}},
    {"ToPlain", {2, 5, 7, 3}, {2, 3, 5, 7}},
    {"ToPlain", {3, 130, 33}, {3, 33, 130}},
    {"ToPlain", {1, 1, 1, 96}, {1, 96, 1, 1}},
    {"MaxPool", {2, 7, 8, 19}, {2, 3, 4, 19}, {{"kernel_shape", Ints{3, 2}}, {"strides", Ints{2, 2}}}},
    {"MaxPool", {1, 5, 5, 4}, {1, 5, 5, 4}, {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}}},
    {"MaxPool",
     {1, 6, 6, 9},
     {1, 3, 3, 9},
     {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"ceil_mode", std::int64_t{1}}}},
    {"MaxPool", {1, 8, 8, 16}, {1, 4, 4, 16}, {{"kernel_shape", Ints{3, 3}}, {"dilations", Ints{2, 2}}}},
    {"MaxPool", {2, 10, 5}, {2, 5, 5}, {{"kernel_shape", Ints{2}}, {"strides", Ints{2}}}},
    {"AveragePool", {2, 7, 8, 19}, {2, 3, 4, 19}, {{"kernel_shape", Ints{3, 2}}, {"strides", Ints{2, 2}}}},
    {"AveragePool", {1, 5, 5, 20}, {1, 5, 5, 20}, {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}}},
    {"AveragePool",
     {1, 5, 5, 20},
     {1, 5, 5, 20},
     {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}, {"count_include_pad", std::int64_t{1}}}},
    {"AveragePool",
     {1, 6, 6, 3},
     {1, 3, 3, 3},
     {{"kernel_shape", Ints{3, 3}},
      {"strides", Ints{2, 2}},
      {"ceil_mode", std::int64_t{1}},
      {"count_include_pad", std::int64_t{1}}}},
    {"GlobalAveragePool", {3, 7, 7, 50}, {3, 1, 1, 50}},
    {"GlobalAveragePool", {0, 7, 7, 50}, {0, 1, 1, 50}},
    {"GlobalAveragePool", {2, 9, 33}, {2, 1, 33}},
};

class ChannelsLast : public ::testing::TestWithParam<Case> {};

TEST_P(ChannelsLast, AgreesWithTheReference) {
  const Case& c = GetParam();
  Node node;
  node.domain = "pare";
  node.op = c.op;
  node.attrs = c.attrs;
  const std::vector<Argument> in = {{random_floats(c.x, 1), false}};
  const auto kernels = cpu_registry().candidates("pare", c.op, Backend::kCpu);
  ASSERT_EQ(kernels.size(), 2u);
  ThreadPool one(1);
  std::vector<float> expected, first;
  ASSERT_EQ(run_kernel(*kernels[1], node, in, c.y, one, expected), "");
  // The largest window has n values of at most 1: a float sum errs by n^2 eps / n after the division.
  const double allowed = std::string(c.op).find("Average") == std::string::npos ? 0 : 64 * 0x1p-24;
  for (const Isa isa_class : testing::isa_classes()) {
    const testing::WithIsa with(isa_class);
    for (const int threads : {1, 2}) {
      ThreadPool pool(threads);
      std::vector<float> y;
      ASSERT_EQ(run_kernel(*kernels[0], node, in, c.y, pool, y), "");
      ASSERT_EQ(y.size(), expected.size());
      for (std::size_t i = 0; i < y.size(); ++i)
        ASSERT_LE(std::fabs(static_cast<double>(y[i]) - static_cast<double>(expected[i])), allowed) << i;
      if (first.empty()) first = y;
      EXPECT_TRUE(testing::same_bits(first, y)) << name(isa_class) << " " << threads;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ChannelsLast, ::testing::ValuesIn(kCases));

TEST(ChannelsLastValues, ByHand) {
  ThreadPool pool(1);
  Node node;
  node.domain = "pare";
  node.op = "ToChannelsLast";
  std::vector<float> y;
  const Tensor x = Tensor::from<float>(DType::kF32, {1, 2, 1, 3}, {1, 2, 3, 4, 5, 6});
  for (const Kernel* kernel : cpu_registry().candidates("pare", "ToChannelsLast", Backend::kCpu)) {
    ASSERT_EQ(run_kernel(*kernel, node, {{x, false}}, {1, 1, 3, 2}, pool, y), "");
    EXPECT_EQ(y, (std::vector<float>{1, 4, 2, 5, 3, 6}));
  }
  node.op = "MaxPool";
  node.attrs = {{"kernel_shape", Ints{1, 2}}};
  const Tensor with_nan = Tensor::from<float>(DType::kF32, {1, 1, 4, 1}, {NAN, -INFINITY, -INFINITY, -3});
  for (const Kernel* kernel : cpu_registry().candidates("pare", "MaxPool", Backend::kCpu)) {
    ASSERT_EQ(run_kernel(*kernel, node, {{with_nan, false}}, {1, 1, 3, 1}, pool, y), "");
    EXPECT_TRUE(std::isnan(y[0])) << kernel->name;
    EXPECT_EQ(y[1], -INFINITY) << kernel->name;
    EXPECT_EQ(y[2], -3) << kernel->name;
  }
  node.op = "AveragePool";
  node.attrs = {{"kernel_shape", Ints{1, 2}}, {"pads", Ints{0, 1, 0, 0}}};
  const Tensor row = Tensor::from<float>(DType::kF32, {1, 1, 3, 1}, {2, 4, 8});
  for (const Kernel* kernel : cpu_registry().candidates("pare", "AveragePool", Backend::kCpu)) {
    node.attrs["count_include_pad"] = std::int64_t{0};
    ASSERT_EQ(run_kernel(*kernel, node, {{row, false}}, {1, 1, 3, 1}, pool, y), "");
    EXPECT_EQ(y, (std::vector<float>{2, 3, 6})) << kernel->name;
    node.attrs["count_include_pad"] = std::int64_t{1};
    ASSERT_EQ(run_kernel(*kernel, node, {{row, false}}, {1, 1, 3, 1}, pool, y), "");
    EXPECT_EQ(y, (std::vector<float>{1, 3, 6})) << kernel->name;
  }
}

// Elements of other sizes than 4 bytes move as well.
TEST(ChannelsLastValues, OtherElementTypes) {
  const Kernel& kernel = *cpu_registry().candidates("pare", "ToPlain", Backend::kCpu)[0];
  for (const DType type : {DType::kU8, DType::kF16, DType::kI64}) {
    const std::int64_t size = bits(type) / 8, positions = 35, channels = 18;
    Tensor x = Tensor::allocate(type, {2, 5, 7, channels}), y = Tensor::allocate(type, {2, channels, 5, 7});
    auto* from = x.mut<std::uint8_t>();
    for (std::int64_t i = 0; i < x.bytes(); ++i) from[i] = static_cast<std::uint8_t>(i * 37 + i / 251);
    Node node;
    node.domain = "pare";
    node.op = "ToPlain";
    ThreadPool pool(2);
    const std::vector<TensorView> in = {x.view()}, out = {y.view()};
    OpCall call;
    call.node = &node;
    call.in = in;
    call.out = out;
    call.pool = &pool;
    ASSERT_EQ(kernel.why_not(call), "");
    kernel.run(call);
    for (std::int64_t n = 0; n < 2; ++n)
      for (std::int64_t p = 0; p < positions; ++p)
        for (std::int64_t c = 0; c < channels; ++c)
          ASSERT_EQ(std::memcmp(from + ((n * positions + p) * channels + c) * size,
                                y.mut<std::uint8_t>() + ((n * channels + c) * positions + p) * size,
                                static_cast<std::size_t>(size)),
                    0);
  }
}

// ONNX Conv on plain maps equals pare.Conv between two moves.
TEST(PlainConv, EqualsTheMovedOne) {
  struct Plain {
    Dims x, w, y;
    Attributes attrs;
  };
  const Plain plains[] = {
      {{2, 16, 9, 9}, {24, 16, 3, 3}, {2, 24, 9, 9}, {{"auto_pad", std::string("SAME_UPPER")}}},
      {{2, 16, 9, 9}, {24, 16, 1, 1}, {2, 24, 5, 5}, {{"strides", Ints{2, 2}}}},
      {{1, 6, 40}, {6, 1, 5}, {1, 6, 40}, {{"pads", Ints{2, 2}}, {"group", std::int64_t{6}}}},
      {{0, 3, 8, 8}, {4, 3, 3, 3}, {0, 4, 6, 6}, {}},
  };
  ThreadPool pool(2);
  for (const Plain& p : plains) {
    Node node;
    node.op = "Conv";
    node.attrs = p.attrs;
    const std::vector<Argument> in = {
        {random_floats(p.x, 1), false}, {random_floats(p.w, 2), true}, {random_floats({p.w[0]}, 3), true}};
    std::vector<float> y;
    const Kernel& kernel = *cpu_registry().candidates("", "Conv", Backend::kCpu)[0];
    ASSERT_EQ(run_kernel(kernel, node, in, p.y, pool, y), "");

    const bool one_axis = p.x.size() == 3;
    const std::int64_t h = one_axis ? 1 : p.x[2], w = p.x.back();
    const std::int64_t oh = one_axis ? 1 : p.y[2], ow = p.y.back();
    const bool same = node.has_attr("auto_pad");
    Node inner;
    inner.domain = "pare";
    inner.op = "Conv";
    inner.attrs["pads"] = one_axis ? Ints{0, 2, 0, 2} : same ? Ints{1, 1, 1, 1} : Ints{0, 0, 0, 0};
    if (node.has_attr("strides")) inner.attrs["strides"] = Ints{2, 2};
    if (node.has_attr("group")) inner.attrs["group"] = std::int64_t{6};
    Tensor x = Tensor::allocate(DType::kF32, {p.x[0], h, w, p.x[1]});
    for (std::int64_t n = 0; n < p.x[0]; ++n)
      for (std::int64_t c = 0; c < p.x[1]; ++c)
        for (std::int64_t i = 0; i < h * w; ++i)
          x.mut<float>()[(n * h * w + i) * p.x[1] + c] =
              in[0].tensor.as<float>()[(n * p.x[1] + c) * h * w + i];
    const Tensor weight = one_axis ? in[1].tensor.reshaped({p.w[0], p.w[1], 1, p.w[2]}) : in[1].tensor;
    const Kernel& reference = *cpu_registry().candidates("pare", "Conv", Backend::kCpu).back();
    std::vector<float> expected;
    ASSERT_EQ(run_kernel(reference, inner, {{x, false}, {weight, true}, in[2]}, {p.x[0], oh, ow, p.w[0]},
                         pool, expected),
              "");
    for (std::int64_t n = 0; n < p.x[0]; ++n)
      for (std::int64_t m = 0; m < p.w[0]; ++m)
        for (std::int64_t i = 0; i < oh * ow; ++i)
          ASSERT_NEAR(y[static_cast<std::size_t>((n * p.w[0] + m) * oh * ow + i)],
                      expected[static_cast<std::size_t>((n * oh * ow + i) * p.w[0] + m)], 1e-4);
  }
}

}  // namespace
}  // namespace pare
