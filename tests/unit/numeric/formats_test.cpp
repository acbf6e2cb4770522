// Every format, every code, both ways, against spec.h; boundaries with their neighbours; NaN, infinities, -0,
// saturation. The scalar functions are reached through the rows of the table and, for saturate = 0, directly.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "engine/numeric/e2m1.h"
#include "engine/numeric/e4m3.h"
#include "engine/numeric/e5m2.h"
#include "engine/numeric/e8m0.h"
#include "engine/numeric/integers.h"
#include "engine/numeric/table.h"
#include "tests/unit/numeric/spec.h"

namespace pare {
namespace {

using spec::Format;
using spec::Special;

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

int encode(const Format& f, float value) {
  std::uint16_t code = 0;
  format_info(f.type).encode(&value, &code, 1);
  return code;
}

float decode(const Format& f, int code) {
  const auto stored = static_cast<std::uint16_t>(code);
  float value = 0;
  format_info(f.type).decode(&stored, &value, 1);
  return value;
}

int encode_unsaturated(const Format& f, float value) {
  switch (f.type) {
    case DType::kE4M3FN:
      return encode_e4m3_unsaturated(value);
    case DType::kE4M3FNUZ:
      return encode_e4m3fnuz_unsaturated(value);
    case DType::kE5M2:
      return encode_e5m2_unsaturated(value);
    case DType::kE5M2FNUZ:
      return encode_e5m2fnuz_unsaturated(value);
    default:
      return -1;
  }
}

bool is_fp8(const Format& f) { return f.exponent + f.mantissa == 7; }
bool saturates(const Format& f) { return f.type != DType::kF16 && f.type != DType::kBF16; }

int with_sign(const Format& f, int magnitude, bool negative) {
  if (f.special == Special::kFnuz && magnitude == 0) return 0;  // no -0
  return magnitude | (negative ? f.sign_code() : 0);
}

int expected(const Format& f, const std::vector<double>& values, float x, bool saturate) {
  const bool negative = std::signbit(x);
  if (!saturate && spec::overflows(values, static_cast<double>(x))) {
    if (f.special == Special::kIeee) return with_sign(f, static_cast<int>(values.size()), negative);
    return f.special == Special::kFnuz ? f.sign_code() : f.magnitudes() - 1 + (negative ? f.sign_code() : 0);
  }
  return with_sign(f, spec::nearest(values, static_cast<double>(x)), negative);
}

class FloatFormat : public testing::TestWithParam<Format> {
 protected:
  void check(float x) const {
    ASSERT_EQ(encode(f_, x), expected(f_, values_, x, saturates(f_))) << x;
    if (is_fp8(f_)) {
      ASSERT_EQ(encode_unsaturated(f_, x), expected(f_, values_, x, false)) << x;
    }
  }

  Format f_ = GetParam();
  std::vector<double> values_ = spec::finite_values(f_);
};

TEST_P(FloatFormat, DecodesEveryCode) {
  for (int code = 0; code < 2 * f_.magnitudes(); ++code) {
    const double want = spec::value_of(f_, code);
    const float got = decode(f_, code);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << code;
      continue;
    }
    EXPECT_EQ(static_cast<double>(got), want) << code;
    EXPECT_EQ(std::signbit(got), std::signbit(want)) << code;
    EXPECT_EQ(encode(f_, got), std::isinf(want) && saturates(f_) ? code - 1 : code);  // E5M2: 0x7C -> 0x7B
  }
}

TEST_P(FloatFormat, EncodesBesideEveryBoundary) {
  // The middle of two neighbours needs one bit more than the format has: exact in float32.
  for (std::size_t code = 0; code + 1 < values_.size(); ++code) {
    const double middle = (values_[code] + values_[code + 1]) / 2;
    const auto tie = static_cast<float>(middle);
    ASSERT_EQ(static_cast<double>(tie), middle);
    const int down = static_cast<int>(code), up = down + 1, even = down % 2 == 0 ? down : up;
    for (const bool negative : {false, true}) {
      const float s = negative ? -1.0f : 1.0f;
      ASSERT_EQ(encode(f_, s * std::nextafter(tie, 0.0f)), with_sign(f_, down, negative)) << tie;
      ASSERT_EQ(encode(f_, s * tie), with_sign(f_, even, negative)) << tie;
      ASSERT_EQ(encode(f_, s * std::nextafter(tie, kInf)), with_sign(f_, up, negative)) << tie;
    }
  }
}

TEST_P(FloatFormat, EncodesAroundTheLargest) {
  const double largest = values_.back(), step = largest - values_[values_.size() - 2];
  for (const double v : {largest, largest + step / 4, largest + step / 2, largest + step, largest * 1.5})
    for (const float x : {std::nextafter(static_cast<float>(v), 0.0f), static_cast<float>(v),
                          std::nextafter(static_cast<float>(v), kInf)})
      for (const float s : {1.0f, -1.0f}) check(s * x);
  for (const float x : {kInf, -kInf, 3.4e38f, -3.4e38f}) check(x);
}

TEST_P(FloatFormat, EncodesZerosAndTheSmallest) {
  const auto smallest = static_cast<float>(values_[1]);
  for (const float x :
       {0.0f, -0.0f, smallest, -smallest, smallest / 2, -smallest / 2, smallest / 4, 1e-45f, -1e-45f})
    check(x);
}

TEST_P(FloatFormat, NanStaysNan) {
  for (const std::uint32_t bits :
       {0x7FC00000u, 0xFFC00000u, 0x7F800001u, 0xFFFFFFFFu, 0x7FFFFFFFu, 0x7F80FFFFu}) {
    const float nan = spec::from_bits(bits);
    if (f_.type == DType::kE2M1) {
      EXPECT_EQ(encode(f_, nan), 7);
      continue;
    }
    EXPECT_TRUE(std::isnan(decode(f_, encode(f_, nan)))) << bits;
    EXPECT_TRUE(std::isnan(spec::value_of(f_, encode(f_, nan)))) << bits;
    if (f_.special != Special::kFnuz) {
      EXPECT_EQ((encode(f_, nan) & f_.sign_code()) != 0, bits >> 31 != 0);
    }
    if (is_fp8(f_)) {
      EXPECT_EQ(encode_unsaturated(f_, nan), encode(f_, nan)) << bits;
    }
  }
}

// Trying all codes for each value is what makes this independent.
TEST_P(FloatFormat, EncodesEveryUpperHalfAsTheNearest) {
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper)
    for (const std::uint32_t lower : {0x0000u, 0x8001u}) {
      const float x = spec::from_bits(upper << 16 | lower);
      if (!std::isnan(x)) check(x);
      if (HasFatalFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(All, FloatFormat, testing::ValuesIn(spec::formats()),
                         [](const auto& p) { return std::string(name(p.param.type)); });

TEST(E4m3, CodesOfTheSpecification) {
  EXPECT_EQ(encode_e4m3(448), 0x7E);
  EXPECT_EQ(encode_e4m3(464), 0x7E);  // the tie with the missing 480
  EXPECT_EQ(encode_e4m3(kInf), 0x7E);
  EXPECT_EQ(encode_e4m3(-kInf), 0xFE);
  EXPECT_EQ(encode_e4m3(kNan), 0x7F);
  EXPECT_EQ(encode_e4m3(0x1p-10f), 0);
  EXPECT_EQ(encode_e4m3(0x1.8p-10f), 1);
  EXPECT_EQ(encode_e4m3(1.8131605f), 0x3F);  // onnx/onnx#7222: 1.875, not 1.75
  EXPECT_EQ(decode_e4m3(0x3F), 1.875f);
  EXPECT_EQ(encode_e4m3_unsaturated(465), 0x7F);
  EXPECT_EQ(encode_e4m3_unsaturated(-kInf), 0xFF);
  EXPECT_EQ(encode_e5m2(1e6f), 0x7B);
  EXPECT_EQ(encode_e5m2_unsaturated(1e6f), 0x7C);
  EXPECT_EQ(encode_e4m3fnuz(-1e-9f), 0);
}

TEST(E2m1, TiesOfTheTable) {
  const float ties[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  const int codes[] = {0, 2, 2, 4, 4, 6, 6};
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(encode_e2m1(ties[i]), codes[i]);
    EXPECT_EQ(encode_e2m1(-ties[i]), codes[i] | 8);
  }
  EXPECT_EQ(encode_e2m1(-kNan), 7);
  EXPECT_EQ(encode_e2m1(-0.0f), 8);
  EXPECT_EQ(decode_e2m1(0xF5), 3.0f) << "upper bits are ignored";
}

// 2^(code - 127) by search over all codes, in double.
int e8m0_by_search(double x, E8m0Round round, bool saturate) {
  const double low = std::ldexp(1, -127), high = std::ldexp(1, 127);
  if (std::isnan(x) || x < 0) return 0xFF;
  if (x < low) return saturate ? 0 : 0xFF;
  if (std::isinf(x)) return saturate ? 0xFE : 0xFF;
  int below = 0;
  while (below < 0xFE && std::ldexp(1, below + 1 - 127) <= x) ++below;
  const double base = std::ldexp(1, below - 127);
  if (x == base || round == E8m0Round::kDown) return below;
  const bool up = round == E8m0Round::kUp || x >= 1.5 * base;
  if (!up) return below;
  return x > high && below == 0xFE ? (saturate ? 0xFE : 0xFF) : below + 1;
}

TEST(E8m0, EveryCodeAndEveryUpperHalf) {
  for (int code = 0; code < 0xFF; ++code) {
    const float value = decode_e8m0(static_cast<std::uint8_t>(code));
    EXPECT_EQ(static_cast<double>(value), std::ldexp(1, code - 127));
    for (const auto round : {E8m0Round::kUp, E8m0Round::kDown, E8m0Round::kNearest})
      for (const bool saturate : {true, false}) EXPECT_EQ(encode_e8m0(value, round, saturate), code);
  }
  EXPECT_TRUE(std::isnan(decode_e8m0(0xFF)));
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper)
    for (const std::uint32_t lower : {0u, 1u, 0xFFFFu}) {
      const float x = spec::from_bits(upper << 16 | lower);
      for (const auto round : {E8m0Round::kUp, E8m0Round::kDown, E8m0Round::kNearest})
        for (const bool saturate : {true, false})
          ASSERT_EQ(encode_e8m0(x, round, saturate), e8m0_by_search(static_cast<double>(x), round, saturate))
              << x << " " << static_cast<int>(round) << saturate;
    }
}

TEST(E8m0, CasesOfTheHeader) {
  EXPECT_EQ(encode_e8m0(1.5f), 128);
  EXPECT_EQ(encode_e8m0(0.0f), 0);
  EXPECT_EQ(encode_e8m0(-0.0f), 0);
  EXPECT_EQ(encode_e8m0(kNan), 0xFF);
  EXPECT_EQ(encode_e8m0(kInf), 0xFE);
  EXPECT_EQ(encode_e8m0(-1.0f), 0xFF);
  EXPECT_EQ(encode_e8m0(0.0f, E8m0Round::kNearest, false), 0xFF);
  // What onnx's node test expects: 0, 0.124, 0.25, 0.5, 1.1, 2, 4, 8 rounded up.
  const float x[] = {0.0f, 0.124f, 0.25f, 0.5f, 1.1f, 2.0f, 4.0f, 8.0f};
  const int want[] = {0, 124, 125, 126, 128, 128, 129, 130};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(encode_e8m0(x[i]), want[i]) << x[i];
}

class IntegerFormat : public testing::TestWithParam<DType> {};

TEST_P(IntegerFormat, RoundsHalfToEvenAndSaturates) {
  const FormatInfo& row = format_info(GetParam());
  const double low = row.lowest(), high = row.largest;
  std::mt19937 rng(7);
  std::vector<float> inputs = {0.0f,  -0.0f, kInf,   -kInf, kNan, -kNan, 1e-45f, 3e9f,
                               -3e9f, 1e30f, -1e30f, 0.5f,  1.5f, -0.5f, -1.5f,  0.49999997f};
  for (int i = 0; i < 20000; ++i) inputs.push_back(spec::from_bits(static_cast<std::uint32_t>(rng())));
  for (double v = std::max(low - 3, -300.0); v <= std::min(high + 3, 300.0); v += 0.25)
    for (const float toward : {-kInf, kInf}) {
      inputs.push_back(static_cast<float>(v));
      inputs.push_back(std::nextafter(static_cast<float>(v), toward));
    }
  for (const double edge : {low, high})
    for (const double d : {-1.5, -0.5, -0.25, 0.0, 0.25, 0.5, 1.5})
      inputs.push_back(static_cast<float>(edge + d));

  for (const float x : inputs) {
    const double rounded = std::isnan(x) ? 0 : std::nearbyint(static_cast<double>(x));
    const double want = std::min(std::max(rounded, low), high);
    std::uint16_t code = 0xAAAA;
    row.encode(&x, &code, 1);
    if (row.bits < 16) code &= 0xFF;
    EXPECT_EQ(code >> row.bits, 0) << "unused bits are zero";
    float back = 0;
    row.decode(&code, &back, 1);
    ASSERT_EQ(static_cast<double>(back), want) << x;
  }
}

TEST_P(IntegerFormat, EveryCodeComesBack) {
  const FormatInfo& row = format_info(GetParam());
  const int codes = 1 << row.bits;
  for (int code = 0; code < codes; ++code) {
    const auto stored = static_cast<std::uint16_t>(code);
    float value = 0;
    row.decode(&stored, &value, 1);
    EXPECT_EQ(value, static_cast<float>(code >= codes / 2 && row.is_signed ? code - codes : code));
    std::uint16_t again = 0;
    row.encode(&value, &again, 1);
    ASSERT_EQ(again, code);
  }
}

INSTANTIATE_TEST_SUITE_P(All, IntegerFormat,
                         testing::Values(DType::kI16, DType::kU16, DType::kI8, DType::kU8, DType::kI4,
                                         DType::kU4, DType::kI2, DType::kU2),
                         [](const auto& p) { return std::string(name(p.param)); });

// Every code, every middle between two and its neighbours, and numbers in between, from 0 to 448.
TEST(Formats, E4M3WithoutCodesIsE4M3) {
  for (int code = 0; code < 0x7E; ++code) {
    const float here = decode_e4m3(static_cast<std::uint8_t>(code));
    const float next = decode_e4m3(static_cast<std::uint8_t>(code + 1)), middle = (here + next) / 2;
    for (const float x : {here, next, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f),
                          std::nextafter(here, 1e9f), std::nextafter(next, 0.0f)})
      EXPECT_EQ(nearest_e4m3(x), decode_e4m3(encode_e4m3(x))) << x;
  }
  for (std::uint32_t bits = 0; bits <= float_bits(448.0f); bits += 9973) {
    const float x = bits_float(bits);
    ASSERT_EQ(nearest_e4m3(x), decode_e4m3(encode_e4m3(x))) << x;
  }
}

}  // namespace
}  // namespace pare
