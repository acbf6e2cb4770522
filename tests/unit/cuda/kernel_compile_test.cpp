// Every kind of generated kernel passes NVRTC for the H200 (sm_90a), and equal layers have equal text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/base/error.h"
#include "engine/build/plan/make_plan.h"
#include "engine/cuda/compile.h"
#include "engine/cuda/driver.h"
#include "engine/cuda/kernel_source.h"
#include "engine/numeric/convert.h"
#include "tests/unit/build/networks.h"

namespace pare::cuda {
namespace {

bool have_nvrtc() {
  try {
    nvrtc();
    return true;
  } catch (const Error&) {
    return false;
  }
}

// One of each tactic and kind of layer, so that the test takes seconds.
std::vector<std::string> texts(const Graph& graph, DType precision, std::set<std::string>& seen) {
  PlanOptions options;
  options.precision = precision;
  options.shortcuts = true;
  const EnginePlan plan = make_plan(graph, options);
  std::vector<std::string> codes;
  for (const PlanLayer& layer : plan.layers) {
    std::string why;
    for (const KernelSource& s : generated_kernels(plan, layer, why)) {
      EXPECT_GT(s.grid[0] * s.grid[1] * s.grid[2], 0);
      EXPECT_LE(s.block, 1024);
      EXPECT_LE(s.shared_bytes, 227 * 1024) << s.tactic;
      const std::string group = s.tactic.substr(0, s.tactic.find(':'));
      const DType x = plan.tensors[static_cast<std::size_t>(layer.in[0].tensor)].dtype;
      if (seen.insert(fmt::format("{} {} {} {} {} {} {}", name(precision), name(layer.kind), layer.op, group,
                                  layer.in.size(), name(x), static_cast<int>(layer.epilogue.act.kind)))
              .second)
        codes.push_back(s.code);
    }
  }
  return codes;
}

TEST(Kernels, PassTheCompiler) {
  if (!have_nvrtc()) GTEST_SKIP() << "NVRTC is not on this machine";
  std::vector<std::string> codes;
  std::set<std::string> seen;
  for (const DType precision : {DType::kF16, DType::kBF16, DType::kF32})
    for (const Graph& graph : {test::resnet50(), test::vit(1), test::bert(1, 2), test::bert(300, 1)})
      for (std::string& code : texts(graph, precision, seen)) codes.push_back(std::move(code));
  for (const DType type : {DType::kI8, DType::kE4M3FN})
    for (const Graph& graph :
         {test::image_codes(type), test::image_codes(type, {8, 3, 192, 192})})  // large enough to stream
      for (std::string& code : texts(graph, DType::kF16, seen)) codes.push_back(std::move(code));
  for (const DType type : {DType::kI8, DType::kE4M3FN})
    for (std::string& code : texts(test::large_products(type), DType::kF16, seen))
      codes.push_back(std::move(code));
  EXPECT_TRUE(std::any_of(codes.begin(), codes.end(), [](const std::string& code) {
    return code.find("= halves_times_(") != std::string::npos;  // GELU of pairs
  }));
  const Compiled compiled = compile_all(codes, "sm_90a", 2);
  for (const auto& [hash, why] : compiled.failed) ADD_FAILURE() << why;
  EXPECT_GT(compiled.binaries.size(), 15u);
  const auto streams = std::count_if(seen.begin(), seen.end(), [](const std::string& key) {
    return key.find(" stream ") != std::string::npos;
  });
  EXPECT_GE(streams, 4);  // int8 and E4M3, with a shortcut inside and without
}

TEST(Kernels, ACompilerErrorIsQuoted) {
  if (!have_nvrtc()) GTEST_SKIP() << "NVRTC is not on this machine";
  try {
    compile("extern \"C\" __global__ void kernel() { unknown_function(); }\n", "sm_90a");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("unknown_function"), std::string::npos);
  }
}

// What gelu_short_ computes, beside x Phi(x) in double. The exponential of the device is off by 2^-22 of its
// value, far below what is allowed here.
float short_gelu(float x, const std::vector<float>& tail) {
  const float a = std::fmin(std::fabs(x), 16.0f);
  float p = tail.back();
  for (std::size_t i = tail.size() - 1; i-- > 0;) p = std::fma(p, a, tail[i]);
  return std::fma(-a, std::exp2(p), std::fmax(x, 0.0f));
}

TEST(Gelu, IsAsExactAsItsResultsCanShow) {
  const std::vector<float> half = gelu_tail(DType::kF16), code = gelu_tail(DType::kE4M3FN);
  EXPECT_TRUE(gelu_tail(DType::kF32).empty());
  for (int i = -80000; i <= 80000; ++i) {
    const float x = static_cast<float>(i) / 4096.0f;
    const double want = x * 0.5 * std::erfc(-static_cast<double>(x) / std::sqrt(2.0));
    // Half a unit in the last place of a float16: 2^-12 of the power of two below, subnormal ones 2^-25.
    const double unit =
        std::max(std::ldexp(1.0, std::ilogb(want == 0 ? 1e-30 : want) - 11), std::ldexp(1.0, -25));
    EXPECT_LE(std::fabs(static_cast<double>(short_gelu(x, half)) - want), 0.6 * unit) << x;
    const double off = std::fabs(static_cast<double>(short_gelu(x, code)) - want);
    EXPECT_LE(off, 8.1e-5) << x;
    if (x > -4.5f) {
      EXPECT_LE(off, 0.005 * std::fabs(want)) << x;
    }
  }
  EXPECT_EQ(short_gelu(3e38f, half), 3e38f);
  EXPECT_EQ(short_gelu(-3e38f, half), 0.0f);
}

// A float16 beside the 32 bit number nearest to it: what every step of gelu_pair_ rounds to.
float half(float v) {
  float out = 0;
  std::uint16_t bits = 0;
  convert(TensorView{DType::kF32, {1}, &v}, TensorView{DType::kF16, {1}, &bits});
  convert(TensorView{DType::kF16, {1}, &bits}, TensorView{DType::kF32, {1}, &out});
  return out;
}

// What gelu_pair_ computes. Its exponential is off by 2^-9.9 at most (PTX), which one more rounding stands
// for.
float pair_gelu(float v, const std::vector<float>& tail) {
  const float x = half(v), a = std::fmin(std::fabs(x), 16.0f);
  float p = half(tail.back());
  for (std::size_t i = tail.size() - 1; i-- > 0;) p = half(std::fma(p, a, half(tail[i])));
  return half(std::fma(-a, half(std::exp2(p)), std::fmax(x, 0.0f)));
}

// Half a unit of E4M3 is 3 to 6 % of a value, and 2^-10 of a step below the smallest normal one.
TEST(Gelu, OfPairsIsAsExactAsCodesCanShow) {
  const std::vector<float> tail = gelu_tail(DType::kE4M3FN);
  for (int i = -80000; i <= 80000; ++i) {
    const float x = static_cast<float>(i) / 4096.0f;
    const double want = x * 0.5 * std::erfc(-static_cast<double>(x) / std::sqrt(2.0));
    const double off = std::fabs(static_cast<double>(pair_gelu(x, tail)) - want);
    EXPECT_LE(off, 0.003 * std::fabs(want) + (x < 0 ? 4e-4 : 1e-6)) << x;
    if (x > -4.5f) {
      EXPECT_LE(off, 0.012 * std::fabs(want) + 1e-5) << x;
    }
  }
  EXPECT_EQ(pair_gelu(60000, tail), half(60000));
  EXPECT_EQ(pair_gelu(-60000, tail), 0.0f);
}

TEST(Kernels, EqualLayersHaveEqualText) {
  const EnginePlan plan = make_plan(test::bert(2, 2));
  std::set<std::string> codes;
  int layers = 0;
  for (const PlanLayer& layer : plan.layers) {
    if (layer.kind != LayerKind::kAttention) continue;
    std::string why;
    codes.insert(generated_kernels(plan, layer, why)[0].code);
    ++layers;
  }
  EXPECT_EQ(layers, 2);
  EXPECT_EQ(codes.size(), 1u);
}

}  // namespace
}  // namespace pare::cuda
