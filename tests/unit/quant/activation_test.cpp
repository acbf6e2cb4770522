// Activations in every format and form: what is written computes what the format says, through the executor.
#include "quant/placement/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "engine/ir/schema.h"
#include "engine/numeric/e4m3.h"
#include "engine/numeric/e8m0.h"
#include "engine/numeric/table.h"
#include "engine/run/session.h"
#include "quant/apply_activation.h"
#include "quant/placement/target_rules.h"
#include "quant/plan.h"

namespace pare::quant {
namespace {

constexpr std::int64_t kRows = 3, kWidth = 8;

// x [batch, 3, 8]: y = x + 0, or y = x times the unit matrix, so that y is what the pair gives.
Graph passes_through(bool product = false) {
  Graph g;
  g.opset = 21;
  Value x;
  x.name = "x";
  x.dtype = DType::kF32;
  x.shape = Shape({Dim::named("batch"), Dim::of(kRows), Dim::of(kWidth)});
  g.inputs = {g.add_value(x)};
  Node add;
  add.op = "Add";
  add.name = "add";
  add.in = {g.inputs[0], g.add_constant("zero", Tensor::scalar(0.0f))};
  Value y;
  y.name = "y";
  y.dtype = DType::kF32;
  add.out = {g.add_value(y)};
  g.outputs = {add.out[0]};
  if (product) {
    std::vector<float> unit(kWidth * kWidth);
    for (std::size_t i = 0; i < kWidth; ++i) unit[i * kWidth + i] = 1;
    add.op = "MatMul";
    add.in[1] = g.add_constant("unit", Tensor::from(DType::kF32, {kWidth, kWidth}, unit));
  }
  g.add_node(std::move(add));
  infer_shapes(g);
  return g;
}

std::vector<float> samples() {
  std::vector<float> x;
  for (int i = 0; i < 2 * kRows * kWidth; ++i)
    x.push_back(static_cast<float>(std::sin(i * 1.7) * std::exp2(i % 7 - 3)));
  for (int i = 0; i < kWidth; ++i) x[static_cast<std::size_t>(i)] = 0;  // one row of nothing
  x[9] = -0.0f;
  return x;
}

// `rows`: of the last axis, which a product sums over.
std::vector<float> quantized(const Format& format, const ActivationPlan& plan, const std::vector<float>& x,
                             bool rows) {
  Graph g = passes_through(rows);
  ActivationSite site;
  site.value = g.inputs[0];
  site.uses = {{g.nodes()[0], 0}};
  site.format = format;
  apply_activation(g, site, plan);
  infer_shapes(g);
  verify(g);
  ThreadPool pool(1);
  Session session(std::make_shared<Graph>(g), {&pool, true, false});
  const std::vector<Tensor> out = session.run({Tensor::from(DType::kF32, {2, kRows, kWidth}, x)});
  return {out[0].as<float>(), out[0].as<float>() + out[0].size()};
}

std::vector<float> quantized(const Format& format, const ActivationPlan& plan, const std::vector<float>& x) {
  return quantized(format, plan, x, format.granularity == Granularity::kToken);
}

Format format(DType dtype, Granularity granularity, bool symmetric, bool dynamic) {
  Format f{dtype, granularity, 0, symmetric};
  f.dynamic = dynamic;
  return f;
}

// ONNX's formula in double: rounding before the zero point is added, saturation.
float by_the_book(double x, double scale, double zero, double lowest, double largest) {
  const double q = std::nearbyint(static_cast<float>(x) / static_cast<float>(scale));
  return static_cast<float>(static_cast<float>(std::min(std::max(q + zero, lowest), largest) - zero) *
                            static_cast<float>(scale));
}

TEST(ActivationForms, StaticIntegersOfEveryWidth) {
  const std::vector<float> x = samples();
  struct Case {
    DType dtype;
    bool symmetric;
    double lowest, largest;
  };
  for (const Case& c :
       {Case{DType::kI8, true, -128, 127}, Case{DType::kU8, true, 0, 255}, Case{DType::kU8, false, 0, 255},
        Case{DType::kI16, true, -32768, 32767}, Case{DType::kU16, true, 0, 65535},
        Case{DType::kU16, false, 0, 65535}, Case{DType::kI16, false, -32768, 32767},
        Case{DType::kI4, true, -8, 7}, Case{DType::kU4, false, 0, 15}}) {
    const Format f = format(c.dtype, Granularity::kTensor, c.symmetric, false);
    const ActivationPlan plan = activation_from_range(f, {-3, 5, "given"});
    EXPECT_FLOAT_EQ(plan.scale, c.symmetric ? 5.0f / static_cast<float>(std::exp2(bits(c.dtype) - 1) - 1)
                                            : 8.0f / static_cast<float>(std::exp2(bits(c.dtype)) - 1));
    const std::vector<float> y = quantized(f, plan, x);
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(y[i], by_the_book(x[i], plan.scale, plan.zero_point, c.lowest, c.largest))
          << to_string(f) << " " << x[i];
  }
}

TEST(ActivationForms, ZeroPointsOfEveryWidth) {
  const auto zero = [](DType dtype, bool symmetric) {
    return activation_from_range(format(dtype, Granularity::kTensor, symmetric, false), {-1, 3, ""})
        .zero_point;
  };
  EXPECT_EQ(zero(DType::kU8, false), 64);
  EXPECT_EQ(zero(DType::kU16, false), 16384);
  EXPECT_EQ(zero(DType::kI16, false), -16384);
  EXPECT_EQ(zero(DType::kI8, false), -64);
  EXPECT_EQ(zero(DType::kU4, false), 4);
  EXPECT_EQ(zero(DType::kU8, true), 128);
  EXPECT_EQ(zero(DType::kU16, true), 32768);
  EXPECT_EQ(zero(DType::kI16, true), 0);
  const ActivationPlan low =
      activation_from_range(format(DType::kU16, Granularity::kTensor, false, false), {-3, -1, ""});
  EXPECT_EQ(low.zero_point, 65535);
  // The largest magnitude lands on the largest code of E5M2.
  const ActivationPlan e5m2 =
      activation_from_range(format(DType::kE5M2, Granularity::kTensor, true, false), {-1, 1, ""});
  EXPECT_EQ(e5m2.scale, 1.0f / 57344);
  // NVFP4: the block with the extreme gets the scale code 448, its largest value the code 6.
  Format nvfp4 = format(DType::kE2M1, Granularity::kBlock, true, false);
  nvfp4.block = 16;
  EXPECT_EQ(activation_from_range(nvfp4, {-1, 2, ""}).scale, 2.0f / 2688);
}

TEST(ActivationForms, PerChannel) {
  const std::vector<float> x = samples();
  for (const bool symmetric : {true, false}) {
    const Format f = format(symmetric ? DType::kI8 : DType::kU8, Granularity::kChannel, symmetric, false);
    const ActivationPlan plan = activation_from_ranges(f, {{-1, 1, ""}, {0, 4, ""}, {-8, 2, ""}});
    ASSERT_EQ(plan.channel_scales.size(), 3u);
    EXPECT_EQ(plan.range.low, -8);
    EXPECT_EQ(plan.range.high, 4);
    const std::vector<float> y = quantized(f, plan, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t c = i / kWidth % kRows;
      ASSERT_EQ(y[i], by_the_book(x[i], plan.channel_scales[c], plan.channel_zero_points[c],
                                  symmetric ? -128 : 0, symmetric ? 127 : 255));
    }
  }
}

TEST(ActivationForms, DynamicPerTensor) {
  const std::vector<float> x = samples();
  float low = 0, high = 0;
  for (const float v : x) low = std::min(low, v), high = std::max(high, v);
  const std::vector<float> u8 = quantized(format(DType::kU8, Granularity::kTensor, false, true), {}, x);
  const float scale = (high - low) / 255.0f;  // DynamicQuantizeLinear-11
  const float zero = std::min(std::max(std::nearbyintf(0 - low / scale), 0.0f), 255.0f);
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(u8[i], by_the_book(x[i], scale, zero, 0, 255)) << x[i];
  const float amax = std::max(-low, high);
  const std::vector<float> i8 = quantized(format(DType::kI8, Granularity::kTensor, true, true), {}, x);
  const std::vector<float> i16 = quantized(format(DType::kI16, Granularity::kTensor, true, true), {}, x);
  const std::vector<float> fp8 = quantized(format(DType::kE4M3FN, Granularity::kTensor, true, true), {}, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(i8[i], by_the_book(x[i], amax / 127.0f, 0, -128, 127));
    ASSERT_EQ(i16[i], by_the_book(x[i], amax / 32767.0f, 0, -32768, 32767));
    ASSERT_EQ(fp8[i], decode_e4m3(encode_e4m3(x[i] / (amax / 448.0f))) * (amax / 448.0f));
  }
}

TEST(ActivationForms, DynamicPerToken) {
  const std::vector<float> x = samples();
  for (const DType dtype : {DType::kI8, DType::kE4M3FN, DType::kI4}) {
    const std::vector<float> y = quantized(format(dtype, Granularity::kToken, true, true), {}, x);
    for (std::size_t row = 0; row < x.size(); row += kWidth) {
      float amax = 0;
      for (std::size_t i = row; i < row + kWidth; ++i) amax = std::max(amax, std::fabs(x[i]));
      for (std::size_t i = row; i < row + kWidth; ++i) {
        if (dtype == DType::kE4M3FN) {
          const float s = std::max(amax / 448.0f, 0x1p-126f);
          ASSERT_EQ(y[i], decode_e4m3(encode_e4m3(x[i] / s)) * s);
        } else {
          const float most = dtype == DType::kI4 ? 7 : 127, s = std::max(amax / most, 0x1p-126f);
          ASSERT_EQ(y[i], by_the_book(x[i], s, 0, -most - 1, most)) << name(dtype);
        }
      }
    }
  }
}

// Rows of one sign use all 256 codes; a row of zeros stays.
TEST(ActivationForms, DynamicPerTokenWithZeroPoints) {
  std::vector<float> x = samples();
  for (std::size_t i = 2 * kWidth; i < 3 * kWidth; ++i) x[i] = 0.25f + std::fabs(x[i]);
  for (std::size_t i = 3 * kWidth; i < 4 * kWidth; ++i) x[i] = -0.25f - std::fabs(x[i]);
  const std::vector<float> y = quantized(format(DType::kU8, Granularity::kToken, false, true), {}, x);
  for (std::size_t row = 0; row < x.size(); row += kWidth) {
    float high = 0, low = 0;
    for (std::size_t i = row; i < row + kWidth; ++i) high = std::max(high, x[i]), low = std::min(low, x[i]);
    const float s = std::max((high - low) / 255.0f, 0x1p-126f), z = std::nearbyintf(-(low / s));
    EXPECT_TRUE(z >= 0 && z <= 255);
    for (std::size_t i = row; i < row + kWidth; ++i) {
      ASSERT_EQ(y[i], by_the_book(x[i], s, z, 0, 255)) << i;
      ASSERT_LE(std::fabs(y[i] - x[i]), 0.5001f * s) << i;  // nothing is clipped by more than rounding z
    }
  }
  x[4] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> with_nan = quantized(format(DType::kU8, Granularity::kToken, false, true), {}, x);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(std::isnan(with_nan[i]), i < kWidth) << i;
}

// What a token is depends on who reads: the axis that is summed over, which must be known.
TEST(ActivationForms, TokensFollowTheSum) {
  Node product;
  product.op = "MatMul";
  EXPECT_EQ(summed_axis(product, 0, 4), 3);
  EXPECT_EQ(summed_axis(product, 1, 4), 2);
  Node gemm;
  gemm.op = "Gemm";
  gemm.attrs["transB"] = std::int64_t{1};
  EXPECT_EQ(summed_axis(gemm, 0, 2), 1);
  EXPECT_EQ(summed_axis(gemm, 1, 2), 1);
  gemm.attrs["transA"] = std::int64_t{1};
  EXPECT_EQ(summed_axis(gemm, 0, 2), 0);
  Node conv;
  conv.op = "Conv";
  EXPECT_EQ(summed_axis(conv, 0, 4), 1);
  const Format token = format(DType::kI8, Granularity::kToken, true, true);
  Graph g = passes_through(true);
  EXPECT_EQ(why_no_tokens(g, g.node(g.nodes()[0]), token), "");
  EXPECT_EQ(why_no_tokens(g, conv, format(DType::kI8, Granularity::kTensor, true, true)), "");
  EXPECT_NE(why_no_tokens(g, conv, token).find("no meaning for Conv"), std::string::npos);
  g.value(g.inputs[0]).shape.dims.back() = Dim::named("width");
  EXPECT_NE(why_no_tokens(g, g.node(g.nodes()[0]), token).find("the size of axis 2"), std::string::npos);
}

struct Refused {
  Format format;
  Target target;
  const char* says;
};

// Blocks of 2 along axis 1 of 3 (the last one is short), by the formulas of block_scales.h.
TEST(ActivationForms, BlocksMakeTheirScalesAtRunTime) {
  const std::vector<float> x = samples();
  struct Row {
    DType codes, scales;
  };
  for (const Row& row : {Row{DType::kE2M1, DType::kE4M3FN}, Row{DType::kE2M1, DType::kE8M0},
                         Row{DType::kE4M3FN, DType::kE8M0}}) {
    Format f = format(row.codes, Granularity::kBlock, true, false);
    f.block = 2;
    f.scales = row.scales;
    ActivationPlan plan;
    plan.scale = 0.0078125f * 0.7f;
    const std::vector<float> got = quantized(f, plan, x);
    const FormatInfo& info = format_info(row.codes);
    const auto largest = static_cast<float>(info.largest);
    for (std::int64_t n = 0; n < 2; ++n)
      for (std::int64_t b = 0; b < 2; ++b)
        for (std::int64_t k = 0; k < kWidth; ++k) {
          const auto at = [&](std::int64_t row_in) {
            return static_cast<std::size_t>((n * kRows + row_in) * kWidth + k);
          };
          const std::int64_t end = std::min<std::int64_t>(kRows, 2 * b + 2);
          float amax = 0, scale = 0;
          for (std::int64_t i = 2 * b; i < end; ++i) amax = std::max(amax, std::fabs(x[at(i)]));
          if (row.scales == DType::kE4M3FN) {
            const float level = std::max(amax / 6, plan.scale * 0x1p-9f) / plan.scale;
            scale = decode_e4m3(encode_e4m3(level)) * plan.scale;
          } else {
            const float quotient = amax / (row.codes == DType::kE2M1 ? 3.5f : largest);
            scale = decode_e8m0(
                encode_e8m0(quotient, row.codes == DType::kE2M1 ? E8m0Round::kDown : E8m0Round::kUp));
          }
          for (std::int64_t i = 2 * b; i < end; ++i) {
            const float quotient = x[at(i)] / scale;
            std::uint8_t code = 0;
            float want = 0;
            info.encode(&quotient, &code, 1);
            info.decode(&code, &want, 1);
            ASSERT_EQ(got[at(i)], want * scale) << name(row.codes) << " " << name(row.scales) << " " << at(i);
          }
        }
  }
}

double squared_error(const std::vector<float>& x, const std::vector<float>& y, std::size_t begin,
                     std::size_t end) {
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const double e = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    sum += e * e;
  }
  return sum;
}

// No block is worse than with the scale of its largest magnitude, and the codes are still those of its type:
// quantizing the result again with scales of least error changes nothing.
TEST(ActivationForms, FittedBlocksLoseLess) {
  constexpr std::size_t kTokens = 2 * kRows;
  const std::vector<float> x = samples();
  struct Row {
    DType codes, scales;
    bool gains;  // somewhere in these samples
  };
  for (const Row& row : {Row{DType::kE2M1, DType::kE4M3FN, true}, Row{DType::kE2M1, DType::kE8M0, false},
                         Row{DType::kE4M3FN, DType::kE8M0, false}, Row{DType::kE4M3FN, DType::kF32, true}}) {
    Format f = format(row.codes, Granularity::kBlock, true, row.scales != DType::kE4M3FN);
    f.block = 4;
    f.scales = row.scales;
    ActivationPlan plan;
    plan.scale = 0.0078125f;
    const std::vector<float> plain = quantized(f, plan, x, true);
    f.fitted = true;
    EXPECT_NE(to_string(f).find("least error"), std::string::npos);
    const std::vector<float> fitted = quantized(f, plan, x, true);
    double before = 0, after = 0;
    for (std::size_t block = 0; block < kTokens * kWidth; block += 4) {
      const double a = squared_error(x, plain, block, block + 4),
                   b = squared_error(x, fitted, block, block + 4);
      EXPECT_LE(b, a * 1.000001) << name(row.codes) << " " << name(row.scales) << " " << block;
      before += a;
      after += b;
    }
    if (row.gains) {
      EXPECT_LT(after, before);
    }
    if (row.scales != DType::kF32) {
      EXPECT_EQ(quantized(f, plan, fitted, true), fitted) << name(row.codes) << " " << name(row.scales);
    }
    std::vector<float> bad = x;
    bad[5] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> with_nan = quantized(f, plan, bad, true);
    for (std::size_t i = 0; i < bad.size(); ++i) EXPECT_EQ(std::isnan(with_nan[i]), i < kWidth) << i;
  }
}

TEST(CheckActivation, WhatATargetCannotHoldIsSaidBeforeAnyWork) {
  const auto f = format;
  const Granularity tensor = Granularity::kTensor, channel = Granularity::kChannel,
                    token = Granularity::kToken;
  const Refused table[] = {
      {f(DType::kI8, channel, true, false), Target::kTensorRT, "one scale for a whole activation"},
      {f(DType::kI8, channel, true, false), Target::kOnnxRuntime, "one scale for a whole activation"},
      {f(DType::kI8, tensor, true, true), Target::kTensorRT, "at run time for blocks only, not per tensor"},
      {f(DType::kI8, token, true, true), Target::kTensorRT, "at run time for blocks only, not per token"},
      {f(DType::kU8, tensor, false, false), Target::kTensorRT, "no zero points"},
      {f(DType::kI16, tensor, true, false), Target::kTensorRT, "TensorRT has no int16"},
      {f(DType::kE5M2, tensor, true, false), Target::kTensorRT, "TensorRT has no float8_e5m2"},
      {f(DType::kI8, token, true, false), Target::kPare, "made at run time"},
      {f(DType::kI8, channel, true, true), Target::kPare, "dynamic scales per channel"},
      {f(DType::kI8, token, false, true), Target::kPare, "zero points is uint8, per tensor or token"},
      {f(DType::kU8, token, true, true), Target::kPare, "scales per token are for signed codes"},
      {f(DType::kE4M3FN, tensor, false, false), Target::kPare, "has no zero point"},
      {f(DType::kI32, tensor, true, false), Target::kPare, "not quantized to int32"},
      {f(DType::kF16, tensor, true, false), Target::kOnnxRuntime, "not quantized to float16"},
  };
  for (const Refused& row : table) {
    Spec spec;
    spec.target = row.target;
    spec.activations = row.format;
    spec.weights.dtype = DType::kUndefined;
    try {
      place(passes_through(), spec);
      ADD_FAILURE() << to_string(row.format) << " was accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(row.says), std::string::npos) << error.what();
    }
  }
  for (const DType dtype : {DType::kI8, DType::kI16, DType::kU16, DType::kE5M2})
    for (const Target target : {Target::kPare, Target::kOnnxRuntime}) {
      EXPECT_NO_THROW(check_activation(f(dtype, tensor, true, false)));
      EXPECT_EQ(why_target_refuses(target, f(dtype, tensor, true, false), Role::kActivation), "");
    }
  EXPECT_EQ(why_target_refuses(Target::kTensorRT, f(DType::kE4M3FN, tensor, true, false), Role::kActivation),
            "");
  EXPECT_FALSE(needs_statistics(f(DType::kI8, token, true, true)));
  EXPECT_TRUE(needs_statistics(f(DType::kI8, tensor, true, false)));
}

}  // namespace
}  // namespace pare::quant
