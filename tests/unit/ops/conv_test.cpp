// pare.Conv: every kernel against the reference in double, and the same bits for every batch, slot, number
// of threads and instruction class.
#include "engine/ops/conv/conv.h"

#include <gtest/gtest.h>

#include <array>

#include "engine/ops/conv/conv_winograd.h"
#include "tests/unit/ops/kernel_run.h"

namespace pare {
namespace {

using testing::Argument;
using testing::random_floats;
using testing::run_kernel;

struct Case {
  const char* what;
  Dims x;  // [N,H,W,C]
  std::int64_t m;
  std::array<std::int64_t, 2> kernel;
  std::int64_t group = 1;
  std::array<std::int64_t, 2> strides = {1, 1}, dilations = {1, 1};
  std::array<std::int64_t, 4> pads = {0, 0, 0, 0};
  const char* activation = "";
  bool bias = true, residual = false;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.what; }

const Case kCases[] = {
    {"3x3 same", {2, 14, 14, 32}, 32, {3, 3}, 1, {1, 1}, {1, 1}, {1, 1, 1, 1}, "Relu", true, true},
    {"3x3 odd channels", {3, 7, 7, 19}, 21, {3, 3}, 1, {1, 1}, {1, 1}, {1, 1, 1, 1}, "", true, true},
    {"3x3 4x4 map", {5, 4, 4, 64}, 70, {3, 3}, 1, {1, 1}, {1, 1}, {1, 1, 1, 1}, "Relu"},
    {"3x3 few tiles", {1, 4, 4, 112}, 128, {3, 3}, 1, {1, 1}, {1, 1}, {1, 1, 1, 1}, "Relu"},
    {"3x3 no pads", {1, 9, 6, 16}, 8, {3, 3}, 1, {1, 1}, {1, 1}, {0, 0, 0, 0}, "Gelu", false},
    {"3x3 uneven pads", {2, 10, 5, 8}, 40, {3, 3}, 1, {1, 1}, {1, 1}, {2, 0, 1, 3}, "Sigmoid"},
    {"3x3 wide map", {1, 5, 61, 8}, 12, {3, 3}, 1, {1, 1}, {1, 1}, {1, 1, 1, 1}, "HardSwish", true, true},
    {"3x3 stride 2", {2, 28, 28, 32}, 64, {3, 3}, 1, {2, 2}, {1, 1}, {1, 1, 1, 1}, "Relu"},
    {"3x3 7 to 4", {2, 7, 7, 24}, 33, {3, 3}, 1, {2, 2}, {1, 1}, {1, 1, 1, 1}, "", false, true},
    {"1x1", {2, 7, 7, 40}, 56, {1, 1}, 1, {1, 1}, {1, 1}, {0, 0, 0, 0}, "HardSwish", true, true},
    {"1x1 one position", {3, 1, 1, 96}, 24, {1, 1}, 1, {1, 1}, {1, 1}, {0, 0, 0, 0}, "Relu"},
    {"1x1 stride 2", {2, 14, 14, 33}, 17, {1, 1}, 1, {2, 2}, {1, 1}, {0, 0, 0, 0}, ""},
    {"1x1 with pads", {1, 3, 3, 8}, 8, {1, 1}, 1, {1, 1}, {1, 1}, {1, 1, 1, 1}, ""},
    {"first layer", {2, 28, 28, 1}, 16, {3, 3}, 1, {1, 1}, {1, 1}, {1, 1, 1, 1}, "HardSwish"},
    {"patches", {2, 28, 28, 1}, 192, {4, 4}, 1, {4, 4}, {1, 1}, {0, 0, 0, 0}, ""},
    {"three channels, 7x7", {1, 20, 23, 3}, 10, {7, 7}, 1, {2, 2}, {1, 1}, {3, 3, 3, 3}, "Relu"},
    {"one output", {2, 6, 6, 5}, 1, {3, 3}, 1, {1, 1}, {1, 1}, {1, 1, 1, 1}, ""},
    {"dilation 2", {1, 12, 11, 9}, 14, {3, 3}, 1, {1, 1}, {2, 2}, {2, 2, 2, 2}, "", true, true},
    {"dilation and stride", {1, 12, 11, 9}, 14, {3, 2}, 1, {2, 3}, {2, 1}, {1, 0, 2, 1}, "Clip"},
    {"1-D", {2, 1, 40, 12}, 20, {1, 5}, 1, {1, 2}, {1, 1}, {0, 2, 0, 2}, "Tanh"},
    {"pads larger than the map", {1, 2, 2, 4}, 6, {5, 5}, 1, {1, 1}, {1, 1}, {4, 4, 4, 4}, ""},
    {"groups", {2, 8, 9, 24}, 30, {3, 3}, 3, {1, 1}, {1, 1}, {1, 1, 1, 1}, "Silu", true, true},
    {"groups 1x1", {2, 5, 5, 24}, 36, {1, 1}, 6, {1, 1}, {1, 1}, {0, 0, 0, 0}, ""},
    {"depthwise 3x3", {2, 14, 14, 48}, 48, {3, 3}, 48, {1, 1}, {1, 1}, {1, 1, 1, 1}, "HardSwish", true, true},
    {"depthwise 3x3 stride 2", {2, 15, 13, 37}, 37, {3, 3}, 37, {2, 2}, {1, 1}, {1, 1, 1, 1}, "Relu"},
    {"depthwise 5x5", {2, 7, 7, 20}, 20, {5, 5}, 20, {1, 1}, {1, 1}, {2, 2, 2, 2}, ""},
    {"depthwise 5x5 stride 2", {1, 14, 10, 9}, 9, {5, 5}, 9, {2, 2}, {1, 1}, {1, 2, 2, 1}, "", false},
    {"depthwise odd", {1, 6, 7, 10}, 10, {2, 3}, 10, {1, 2}, {2, 1}, {0, 1, 1, 0}, "", true, true},
    {"depthwise, 2 outputs a channel", {1, 6, 7, 10}, 20, {3, 3}, 10, {1, 1}, {1, 1}, {1, 1, 1, 1}, ""},
    {"empty batch", {0, 7, 7, 16}, 16, {3, 3}, 1, {1, 1}, {1, 1}, {1, 1, 1, 1}, ""},
    {"empty batch depthwise", {0, 7, 7, 16}, 16, {3, 3}, 16, {1, 1}, {1, 1}, {1, 1, 1, 1}, ""},
};

std::int64_t out_size(std::int64_t in, std::int64_t k, std::int64_t stride, std::int64_t dilation,
                      std::int64_t pads) {
  return (in + pads - ((k - 1) * dilation + 1)) / stride + 1;
}

Dims out_dims(const Case& c) {
  return {c.x[0], out_size(c.x[1], c.kernel[0], c.strides[0], c.dilations[0], c.pads[0] + c.pads[2]),
          out_size(c.x[2], c.kernel[1], c.strides[1], c.dilations[1], c.pads[1] + c.pads[3]), c.m};
}

template <std::size_t N>
std::vector<std::int64_t> list(const std::array<std::int64_t, N>& values) {
  return {values.begin(), values.end()};
}

Node node_of(const Case& c) {
  Node node;
  node.domain = "pare";
  node.op = "Conv";
  node.attrs = {{"group", c.group},
                {"strides", list(c.strides)},
                {"dilations", list(c.dilations)},
                {"pads", list(c.pads)},
                {"activation", std::string(c.activation)}};
  if (std::string(c.activation) == "Clip") {
    node.attrs["clip_min"] = -0.25f;
    node.attrs["clip_max"] = 0.5f;
  }
  return node;
}

std::vector<Argument> arguments_of(const Case& c) {
  std::vector<Argument> in = {{random_floats(c.x, 1), false},
                              {random_floats({c.m, c.x[3] / c.group, c.kernel[0], c.kernel[1]}, 2), true}};
  if (c.bias || c.residual) in.push_back({c.bias ? random_floats({c.m}, 3) : Tensor(), c.bias});
  if (c.residual) in.push_back({random_floats(out_dims(c), 4), false});
  return in;
}

const Kernel& reference() { return *cpu_registry().candidates("pare", "Conv", Backend::kCpu).back(); }

// Sum of |x w| + |bias| + |residual| for each output.
std::vector<float> magnitudes(const Case& c, std::vector<Argument> in) {
  for (Argument& a : in) {
    if (a.tensor.empty()) continue;
    a.tensor = a.tensor.clone();
    for (std::int64_t i = 0; i < a.tensor.size(); ++i)
      a.tensor.mut<float>()[i] = std::fabs(a.tensor.mut<float>()[i]);
  }
  Node node = node_of(c);
  node.attrs.erase("activation");
  ThreadPool pool(1);
  std::vector<float> y;
  EXPECT_EQ(run_kernel(reference(), node, in, out_dims(c), pool, y), "");
  return y;
}

// Plain sums: K eps sum |x w|, and one rounding for each term behind it; activations have slopes of at most
// 1.5 and errors of at most 4 ulp. Winograd: the worst case of conv_winograd.h, with |x|, |w| <= 1, is
// 752 (C + 24) eps C; on data of random signs the terms add up like a random walk, so 16 eps sqrt(K) of the
// data's size holds with room to spare, and is what catches a wrong tile.
double tolerance(const Kernel& kernel, const Case& c, double magnitude, double value) {
  constexpr double kEps = 0x1p-24;
  const double k = static_cast<double>(c.x[3] / c.group * c.kernel[0] * c.kernel[1]);
  if (kernel.name == "pare.Conv/cpu:winograd") return 16 * kEps * std::sqrt(k) * (1 + std::sqrt(magnitude));
  return 1.5 * (k + 4) * kEps * magnitude + 8 * kEps * std::fabs(value);
}

class ConvKernels : public ::testing::TestWithParam<Case> {};

TEST_P(ConvKernels, AgreeWithTheReference) {
  const Case& c = GetParam();
  const std::vector<Argument> in = arguments_of(c);
  const std::vector<float> magnitude = magnitudes(c, in);
  ThreadPool one(1);
  std::vector<float> expected;
  ASSERT_EQ(run_kernel(reference(), node_of(c), in, out_dims(c), one, expected), "");
  int ran = 0;
  for (const Kernel* kernel : cpu_registry().candidates("pare", "Conv", Backend::kCpu)) {
    if (kernel == &reference()) continue;
    std::vector<float> first;
    for (const Isa isa_class : testing::isa_classes()) {
      const testing::WithIsa with(isa_class);
      for (const int threads : {1, 2, 3}) {
        ThreadPool pool(threads);
        std::vector<float> y;
        if (!run_kernel(*kernel, node_of(c), in, out_dims(c), pool, y).empty()) continue;
        ASSERT_EQ(y.size(), expected.size());
        double worst = 0;
        for (std::size_t i = 0; i < y.size(); ++i) {
          const double error = std::fabs(static_cast<double>(y[i]) - static_cast<double>(expected[i]));
          const double allowed =
              tolerance(*kernel, c, static_cast<double>(magnitude[i]), static_cast<double>(expected[i]));
          worst = std::fmax(worst, error / allowed);
          ASSERT_LE(error, allowed) << kernel->name << " " << name(isa_class) << " element " << i;
        }
        if (first.empty()) first = y;
        EXPECT_TRUE(testing::same_bits(first, y)) << kernel->name << " " << name(isa_class) << " " << threads;
        ++ran;
      }
    }
  }
  EXPECT_GT(ran, 0);
}

TEST_P(ConvKernels, AnImageDependsOnNoOther) {
  const Case& c = GetParam();
  if (c.x[0] == 0) return;
  Case many = c;
  many.x[0] = 9;
  const Tensor image = random_floats({1, c.x[1], c.x[2], c.x[3]}, 7);
  Tensor batch = random_floats(many.x, 8);
  const std::int64_t slot = 5;
  std::memcpy(batch.mut<float>() + slot * image.size(), image.data(),
              static_cast<std::size_t>(image.bytes()));
  Case single = c;
  single.x[0] = 1;
  single.residual = many.residual = false;
  std::vector<Argument> in_many = arguments_of(many), in_single = arguments_of(single);
  in_many[0].tensor = batch;
  in_single[0].tensor = image;
  ThreadPool pool(2);
  for (const Kernel* kernel : cpu_registry().candidates("pare", "Conv", Backend::kCpu)) {
    std::vector<float> all, alone;
    if (!kernel->invariant) continue;
    if (!run_kernel(*kernel, node_of(many), in_many, out_dims(many), pool, all).empty()) continue;
    ASSERT_EQ(run_kernel(*kernel, node_of(single), in_single, out_dims(single), pool, alone), "");
    const auto size = static_cast<std::int64_t>(alone.size());
    EXPECT_TRUE(testing::same_bits(alone, {all.begin() + slot * size, all.begin() + (slot + 1) * size}))
        << kernel->name;
  }
}

// in_place says so: the session may give the residual's memory to the output.
TEST_P(ConvKernels, TheResidualMayBeTheOutput) {
  Case c = GetParam();
  c.residual = true;
  const std::vector<Argument> in = arguments_of(c);
  const Dims dims = out_dims(c);
  const Node node = node_of(c);
  ThreadPool pool(2);
  for (const Kernel* kernel : cpu_registry().candidates("pare", "Conv", Backend::kCpu)) {
    std::vector<float> apart;
    if (!run_kernel(*kernel, node, in, dims, pool, apart).empty()) continue;
    ASSERT_EQ(kernel->in_place, 1u << 3) << kernel->name;
    Tensor y = in[3].tensor.clone();
    std::vector<TensorView> views;
    for (const Argument& a : in) views.push_back(a.tensor.empty() ? TensorView{} : a.tensor.view());
    views[3] = y.view();
    const std::vector<TensorView> out = {y.view()};
    Scratch scratch;
    OpCall call;
    call.node = &node;
    call.in = views;
    call.out = out;
    call.pool = &pool;
    call.scratch = &scratch;
    std::shared_ptr<const void> prepared;
    if (kernel->prepare != nullptr) prepared = kernel->prepare(call);
    call.prepared = prepared.get();
    kernel->run(call);
    EXPECT_TRUE(testing::same_bits(apart, {y.as<float>(), y.as<float>() + y.size()})) << kernel->name;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ConvKernels, ::testing::ValuesIn(kCases));

// Which kernel runs: the first that takes the call.
TEST(ConvChoice, ByShape) {
  const auto chosen = [](const Case& c) {
    for (const Kernel* kernel : cpu_registry().candidates("pare", "Conv", Backend::kCpu)) {
      ThreadPool pool(1);
      std::vector<float> y;
      if (run_kernel(*kernel, node_of(c), arguments_of(c), out_dims(c), pool, y).empty())
        return std::string(kernel->name);
    }
    return std::string();
  };
  EXPECT_EQ(chosen(kCases[0]), "pare.Conv/cpu:winograd");
  EXPECT_EQ(chosen({"", {1, 4, 4, 112}, 128, {3, 3}, 1, {1, 1}, {1, 1}, {1, 1, 1, 1}}),
            "pare.Conv/cpu:gemm_few_tiles");
  EXPECT_EQ(chosen({"", {9, 4, 4, 112}, 128, {3, 3}, 1, {1, 1}, {1, 1}, {1, 1, 1, 1}}),
            "pare.Conv/cpu:winograd");
  EXPECT_EQ(chosen({"", {1, 2, 2, 16}, 16, {3, 3}, 1, {1, 1}, {1, 1}, {1, 1, 1, 1}}), "pare.Conv/cpu:gemm");
  EXPECT_EQ(chosen({"", {1, 8, 8, 16}, 16, {3, 3}, 16, {1, 1}, {1, 1}, {1, 1, 1, 1}}),
            "pare.Conv/cpu:depthwise");
  EXPECT_EQ(chosen({"", {1, 8, 8, 16}, 16, {1, 1}}), "pare.Conv/cpu:gemm");
}

// The error of Winograd's tiles stays within the factor that conv_winograd.h states.
TEST(Winograd, ErrorIsAboutTwiceThatOfThePlainSum) {
  Case c{"", {2, 16, 16, 128}, 32, {3, 3}, 1, {1, 1}, {1, 1}, {1, 1, 1, 1}, "", false};
  std::vector<Argument> in = arguments_of(c);
  for (std::int64_t i = 0; i < in[0].tensor.size(); ++i)
    in[0].tensor.mut<float>()[i] = std::fmax(0.0f, in[0].tensor.mut<float>()[i]);
  ThreadPool pool(2);
  const auto rms_error = [&](const Kernel& kernel) {
    std::vector<float> y, exact;
    EXPECT_EQ(run_kernel(kernel, node_of(c), in, out_dims(c), pool, y), "");
    EXPECT_EQ(run_kernel(reference(), node_of(c), in, out_dims(c), pool, exact), "");
    double error = 0, power = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double e = static_cast<double>(y[i]) - static_cast<double>(exact[i]);
      error += e * e;
      power += static_cast<double>(exact[i]) * static_cast<double>(exact[i]);
    }
    return std::sqrt(error / power);
  };
  const double winograd = rms_error(conv_winograd_kernel()), plain = rms_error(conv_gemm_kernel());
  EXPECT_LT(winograd, 2.5e-6);
  EXPECT_LT(winograd, 6 * plain) << plain;
  RecordProperty("winograd", std::to_string(winograd));
}

TEST(Winograd, KernelTransformOfAConstantKernel) {
  // With g all ones, sum of G's row i is (1 + p + p^2) / scale; at infinity it is 1.
  const float ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  double out[36];
  winograd_kernel_transform(ones, out);
  EXPECT_DOUBLE_EQ(out[35], 1);
  EXPECT_DOUBLE_EQ(out[0], 1 / (1.265625 * 1.265625));
}

}  // namespace
}  // namespace pare
