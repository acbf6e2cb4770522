// QuantizeLinear and DequantizeLinear against loops in double written here from ONNX's formula, for every
// target, layout and instruction class; golden vectors of ONNX and of public bug reports.
#include "engine/numeric/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/isa.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/pack.h"
#include "engine/numeric/table.h"
#include "tests/unit/numeric/spec.h"

namespace pare {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<Isa> classes() {
  std::vector<Isa> all;
  for (int i = 0; i <= static_cast<int>(best_isa()); ++i) all.push_back(static_cast<Isa>(i));
  return all;
}

const std::vector<DType> kTargets = {
    DType::kI8, DType::kU8,     DType::kI16,      DType::kU16,  DType::kI4,       DType::kU4,  DType::kI2,
    DType::kU2, DType::kE4M3FN, DType::kE4M3FNUZ, DType::kE5M2, DType::kE5M2FNUZ, DType::kE2M1};

// Codes as values: signed integers, or for float formats the raw code.
std::vector<std::int64_t> unpacked(DType type, const std::vector<std::uint8_t>& bytes, std::size_t n) {
  std::vector<std::int64_t> out(n);
  for (std::size_t i = 0; i < n; ++i) {
    std::int64_t code = 0;
    if (bits(type) == 16)
      code = bytes[2 * i] | bytes[2 * i + 1] << 8;
    else
      code = bytes[i * static_cast<std::size_t>(bits(type)) / 8] >>
                 (i * static_cast<std::size_t>(bits(type)) % 8) &
             ((1 << bits(type)) - 1);
    const bool is_signed = is_integer(type) && format_info(type).is_signed;
    out[i] = is_signed && code >= 1 << (bits(type) - 1) ? code - (1 << bits(type)) : code;
  }
  return out;
}

std::vector<std::uint8_t> quantized(const std::vector<float>& x, const ScaleLayout& layout,
                                    const std::vector<float>& scales, const std::vector<std::int32_t>& zeros,
                                    const QuantTarget& target) {
  std::vector<std::uint8_t> codes(
      static_cast<std::size_t>((static_cast<std::int64_t>(x.size()) * bits(target.type) + 7) / 8) + 1, 0xEE);
  quantize(x.data(), layout, scales.data(), zeros.empty() ? nullptr : zeros.data(), target, codes.data());
  EXPECT_EQ(codes.back(), 0xEE) << "wrote beyond the end";
  codes.pop_back();
  return codes;
}

// Index of the scale of flat element i, from the definition of the layouts.
std::size_t scale_index(const ScaleLayout& l, std::int64_t i) {
  if (l.kind == ScaleLayout::Kind::kTensor) return 0;
  const std::int64_t inner = i % l.inner, c = i / l.inner % l.channels, o = i / l.inner / l.channels;
  if (l.kind == ScaleLayout::Kind::kChannel) return static_cast<std::size_t>(c);
  const std::int64_t blocks = (l.channels + l.block - 1) / l.block;
  return static_cast<std::size_t>((o * blocks + c / l.block) * l.inner + inner);
}

struct Case {
  const char* what;
  ScaleLayout layout;
};

std::vector<Case> layouts() {
  return {{"empty", ScaleLayout::per_tensor(0)},
          {"one", ScaleLayout::per_tensor(1)},
          {"tensor", ScaleLayout::per_tensor(5003)},
          {"channels_first", ScaleLayout::per_channel({7, 3, 5, 5}, 0)},
          {"channels_middle", ScaleLayout::per_channel({3, 5, 27}, 1)},
          {"channels_last", ScaleLayout::per_channel({37, 11}, -1)},
          {"long_channels", ScaleLayout::per_channel({2, 2, 4099}, 1)},
          {"one_channel", ScaleLayout::per_channel({9, 1, 3}, 1)},
          {"no_rows", ScaleLayout::per_channel({0, 4}, 1)},
          {"blocks_last", ScaleLayout::blocked({5, 48}, 1, 16)},
          {"many_blocks", ScaleLayout::blocked({3, 4117}, 1, 32)},
          {"short_channels", ScaleLayout::per_channel({60, 3, 49}, 1)},
          {"short_block", ScaleLayout::blocked({3, 37}, -1, 16)},
          {"block_of_one", ScaleLayout::blocked({3, 5}, 1, 1)},
          {"long_block", ScaleLayout::blocked({2, 5000}, 1, 3000)},
          {"blocks_first", ScaleLayout::blocked({10, 7}, 0, 4)},
          {"blocks_middle", ScaleLayout::blocked({2, 6, 33}, 1, 4)}};
}

class EveryTarget : public testing::TestWithParam<DType> {
 protected:
  void TearDown() override { set_isa(best_isa()); }
};

TEST_P(EveryTarget, FollowsTheFormulaInEveryLayoutAndClass) {
  const DType type = GetParam();
  const FormatInfo& row = format_info(type);
  std::mt19937 rng(5);
  std::uniform_real_distribution<float> wide(-1.3f, 1.3f);
  for (const Case& c : layouts()) {
    SCOPED_TRACE(c.what);
    const auto n = static_cast<std::size_t>(c.layout.count()),
               groups = static_cast<std::size_t>(c.layout.scales());
    std::vector<float> x(n), scales(groups);
    std::vector<std::int32_t> zeros;
    for (float& s : scales) s = std::ldexp(1 + std::fabs(wide(rng)), static_cast<int>(rng() % 9) - 6);
    if (is_integer(type))
      for (std::size_t g = 0; g < groups; ++g)
        zeros.push_back(static_cast<std::int32_t>(row.lowest()) +
                        static_cast<std::int32_t>(rng() % (1u << row.bits)));
    for (std::size_t i = 0; i < n; ++i) {
      const float s = scales[scale_index(c.layout, static_cast<std::int64_t>(i))];
      x[i] = wide(rng) * s * static_cast<float>(row.largest);
      if (i % 7 == 3) x[i] = (static_cast<float>(rng() % 64) - 32 + 0.5f) * s;  // quotients at ties
      if (i % 101 == 50) x[i] = i % 2 == 0 ? kInf : -kInf;
      if (i % 103 == 51) x[i] = -0.0f;
      if (i % 107 == 52) x[i] = 3e38f;
      if (i % 109 == 53) x[i] = std::nanf("");
    }
    const QuantTarget target{type};
    std::vector<std::uint8_t> codes;
    for (const Isa isa_class : classes()) {
      SCOPED_TRACE(name(isa_class));
      set_isa(isa_class);
      codes = quantized(x, c.layout, scales, zeros, target);
      const std::vector<std::int64_t> got = unpacked(type, codes, n);
      std::vector<float> back(n), fake(n);
      const std::int32_t* z = zeros.empty() ? nullptr : zeros.data();
      dequantize(type, codes.data(), c.layout, scales.data(), z, back.data());
      fake_quantize(x.data(), c.layout, scales.data(), z, target, fake.data());
      for (std::size_t i = 0; i < n; ++i) {
        const std::size_t g = scale_index(c.layout, static_cast<std::int64_t>(i));
        const float quotient = x[i] / scales[g];
        float value = 0;
        if (is_integer(type)) {
          const double rounded = std::isnan(quotient) ? 0 : std::nearbyint(static_cast<double>(quotient));
          const double want = std::min(std::max(rounded + zeros[g], row.lowest()), row.largest);
          ASSERT_EQ(static_cast<double>(got[i]), want) << x[i] << " / " << scales[g] << " + " << zeros[g];
          value = static_cast<float>(want - zeros[g]) * scales[g];
        } else {
          std::uint8_t code = 0;
          row.encode(&quotient, &code, 1);
          ASSERT_EQ(got[i], code) << x[i] << " / " << scales[g];
          row.decode(&code, &value, 1);
          value *= scales[g];
        }
        ASSERT_EQ(spec::to_bits(back[i]), spec::to_bits(value)) << x[i];
        ASSERT_EQ(spec::to_bits(fake[i]), spec::to_bits(value)) << x[i];
      }
    }
  }
}

// Every kind of float32 bits at awkward scales: same codes from all classes.
TEST_P(EveryTarget, ClassesAgreeOnAnyBits) {
  std::vector<float> x;
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper)
    x.push_back(spec::from_bits(upper << 16 | upper * 40503u % 0x10000));
  for (const float s : {1.0f, 0.1f, 1e-40f, 1e30f, -0.3f, 0.0f, kInf}) {
    const ScaleLayout layout = ScaleLayout::per_tensor(static_cast<std::int64_t>(x.size()));
    for (const bool saturate : {true, false}) {
      const QuantTarget target{GetParam(), saturate};
      set_isa(Isa::kScalar);
      const std::vector<std::uint8_t> want = quantized(x, layout, {s}, {}, target);
      std::vector<float> fake(x.size()), fake_want(x.size());
      fake_quantize(x.data(), layout, &s, nullptr, target, fake_want.data());
      std::vector<float> back(x.size());
      dequantize(GetParam(), want.data(), layout, &s, nullptr, back.data());
      for (std::size_t i = 0; i < x.size(); ++i)
        ASSERT_EQ(spec::to_bits(back[i]), spec::to_bits(fake_want[i])) << x[i] << " / " << s;
      for (const Isa isa_class : classes()) {
        set_isa(isa_class);
        ASSERT_TRUE(quantized(x, layout, {s}, {}, target) == want) << name(isa_class) << " " << s;
        fake_quantize(x.data(), layout, &s, nullptr, target, fake.data());
        ASSERT_EQ(std::memcmp(fake.data(), fake_want.data(), x.size() * 4), 0) << name(isa_class) << " " << s;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryTarget, testing::ValuesIn(kTargets),
                         [](const auto& p) { return std::string(name(p.param)); });

std::vector<std::int64_t> codes_of(const std::vector<float>& x, float s, std::int32_t z, DType type,
                                   DType precision = DType::kF32) {
  const ScaleLayout layout = ScaleLayout::per_tensor(static_cast<std::int64_t>(x.size()));
  return unpacked(
      type,
      quantized(x, layout, {s}, is_integer(type) ? std::vector<std::int32_t>{z} : std::vector<std::int32_t>{},
                {type, true, precision}),
      x.size());
}

using Codes = std::vector<std::int64_t>;

TEST(Quantize, GoldenVectorsOfOnnx) {
  EXPECT_EQ(codes_of({0, 2, 3, 1000, -254, -1000}, 2, 128, DType::kU8), (Codes{128, 129, 130, 255, 1, 0}));
  const auto values = [](const std::vector<float>& x, const ScaleLayout& l, const std::vector<float>& s,
                         DType type) {
    std::vector<float> y(x.size());
    const std::vector<std::uint8_t> codes = quantized(x, l, s, {}, {type});
    decode(type, codes.data(), y.data(), static_cast<std::int64_t>(x.size()));
    return y;
  };
  const ScaleLayout five = ScaleLayout::per_tensor(5);
  EXPECT_EQ(values({0, 1, 2, 100000, 200}, five, {2}, DType::kE4M3FN),
            (std::vector<float>{0, 0.5, 1, 448, 96}));
  EXPECT_EQ(values({0, 1, 2, 100000, 200}, five, {2}, DType::kE5M2),
            (std::vector<float>{0, 0.5, 1, 49152, 96}));
  EXPECT_EQ(values({0, 2.5, 4.8f, 8.6f, -30, -20, 6, 9, -0.0f, -2.5, -4.8f, -8.6f},
                   ScaleLayout::per_channel({3, 4}, 0), {2, 3, 4}, DType::kE2M1),
            (std::vector<float>{0, 1, 2, 4, -6, -6, 2, 3, 0, -0.5, -1, -2}));
}

TEST(Quantize, PublicBugReports) {
  // microsoft/onnxruntime#22741: float16 x and scale, quotient 0.5003; truncating gives 0.
  const float x = 0.050018310546875f, s = 0.0999755859375f;
  EXPECT_EQ(codes_of({x, -x}, s, 0, DType::kI8), (Codes{1, -1}));
  EXPECT_EQ(codes_of({x, -x}, s, 0, DType::kI8, DType::kF16), (Codes{1, -1}));
  // #18576: inputs after rounding to float16.
  std::vector<float> half = {2.11f, 2.5f, 2.6f, 5.3f, 5.5f, 5.9f, 61.3f, 62.5f, 80.9f};
  round_through(DType::kF16, half.data(), half.data(), static_cast<std::int64_t>(half.size()));
  for (const DType precision : {DType::kF32, DType::kF16})
    EXPECT_EQ(codes_of(half, 1, 0, DType::kI8, precision), (Codes{2, 2, 3, 5, 6, 6, 61, 62, 81}));
  // #3442
  EXPECT_EQ(codes_of({-129, -128, -127, -126, 126, 127, 128}, 1, 0, DType::kI8),
            (Codes{-128, -128, -127, -126, 126, 127, 127}));
  // onnx/onnx#7222
  EXPECT_EQ(codes_of({1.8131605f}, 1, 0, DType::kE4M3FN), (Codes{0x3F}));
  // The reference of ONNX casts to int32 before it clips: undefined beyond 2^31.
  EXPECT_EQ(codes_of({3e9f, -3e9f, 3e38f, kInf, -kInf}, 1, 3, DType::kU8), (Codes{255, 0, 255, 255, 0}));
  EXPECT_EQ(codes_of({std::nanf("")}, 1, 3, DType::kU8), (Codes{3}));
}

// Rounding comes before the zero point: -0.5 -> 0, then + 1; adding first would give rne(0.5) = 0.
TEST(Quantize, RoundsBeforeAddingTheZeroPoint) {
  EXPECT_EQ(codes_of({-0.5f, 0.5f, 1.5f, 2.5f}, 1, 1, DType::kU8), (Codes{1, 1, 3, 3}));
  EXPECT_EQ(codes_of({-0.5f, 1.5f}, 1, 1, DType::kI16), (Codes{1, 3}));
}

// A product with 1/s rounds twice and lands on the wrong side of some ties.
TEST(Quantize, DividesTruly) {
  int differ = 0;
  for (const float s : {0.3f, 0.7f, 0.013f}) {
    std::vector<float> x;
    for (int i = 0; i < 4000; ++i) x.push_back((static_cast<float>(i) + 0.5f) * s);
    const Codes got = codes_of(x, s, 0, DType::kI16);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float true_quotient = x[i] / s, product = x[i] * (1 / s);
      EXPECT_EQ(got[i], std::llrint(true_quotient));
      differ += std::nearbyint(true_quotient) != std::nearbyint(product);
    }
  }
  EXPECT_GT(differ, 0) << "these inputs do not tell division from multiplication";
}

// precision = bfloat16 rounds the quotient first, as compressed-tensors does with bfloat16 weights.
TEST(Quantize, PrecisionRoundsTheQuotient) {
  // 100.6 is 100.5 in bfloat16 (step 0.5), which ties to 100.
  EXPECT_EQ(codes_of({100.6f}, 1, 0, DType::kI8), (Codes{101}));
  EXPECT_EQ(codes_of({100.6f}, 1, 0, DType::kI8, DType::kBF16), (Codes{100}));
  const ScaleLayout channels = ScaleLayout::per_channel({1, 2}, 1);
  const std::vector<std::uint8_t> codes =
      quantized({100.6f, 201.2f}, channels, {1, 2}, {5, 7}, {DType::kI8, true, DType::kBF16});
  EXPECT_EQ(unpacked(DType::kI8, codes, 2), (Codes{105, 107}));
  std::vector<float> fake(2);
  const std::vector<float> x = {100.6f, 201.2f}, s = {1, 2};
  fake_quantize(x.data(), channels, s.data(), nullptr, {DType::kI8, true, DType::kBF16}, fake.data());
  EXPECT_EQ(fake, (std::vector<float>{100, 200}));
}

TEST(Quantize, FakeWorksInPlace) {
  std::vector<float> x = {0.3f, -1.7f, 200.0f, -0.2f};
  const float s = 0.5f;
  fake_quantize(x.data(), ScaleLayout::per_tensor(4), &s, nullptr, {DType::kI8}, x.data());
  EXPECT_EQ(x, (std::vector<float>{0.5f, -1.5f, 63.5f, 0.0f}));
  EXPECT_FALSE(std::signbit(x[3])) << "an integer zero has no sign";
}

TEST(Dequantize, Int32BiasesAtAnyAddress) {
  const std::vector<std::int32_t> q = {5, -4, 2147483647, -2147483647 - 1, 0};
  std::vector<char> bytes(21);
  std::memcpy(bytes.data() + 1, q.data(), 20);
  std::vector<float> y(5);
  const std::vector<float> s = {0.5f, 1, 1, 1, 2};
  dequantize(DType::kI32, bytes.data() + 1, ScaleLayout::per_channel({5}, 0), s.data(), nullptr, y.data());
  EXPECT_EQ(y, (std::vector<float>{2.5f, -4, 2147483648.0f, -2147483648.0f, 0}));
}

TEST(Quantize, RefusesWhatHasNoMeaning) {
  const float x = 1, s = 1;
  std::uint8_t code = 0;
  float y = 0;
  const ScaleLayout one = ScaleLayout::per_tensor(1);
  const std::int32_t bad = 8, one_zero = 1;
  for (const DType type : {DType::kF16, DType::kI32, DType::kE8M0, DType::kString, DType::kF32})
    EXPECT_THROW(quantize(&x, one, &s, nullptr, {type}, &code), Error) << name(type);
  EXPECT_THROW(dequantize(DType::kI64, &code, one, &s, nullptr, &y), Error);
  EXPECT_THROW(quantize(&x, one, &s, &bad, {DType::kI4}, &code), Error);
  EXPECT_THROW(fake_quantize(&x, one, &s, &one_zero, {DType::kE4M3FN}, &y), Error);
  const std::int32_t q = 1;
  EXPECT_THROW(dequantize(DType::kI32, &q, one, &s, &one_zero, &y), Error);
  EXPECT_THROW(ScaleLayout::per_channel({2, 3}, 2), Error);
  EXPECT_THROW(ScaleLayout::per_channel({}, 0), Error);
  EXPECT_THROW(ScaleLayout::blocked({2, 3}, 1, 0), Error);
}

}  // namespace
}  // namespace pare
