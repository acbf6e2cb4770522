// Holds the error bounds that vector_math.h states, and that every instruction class gives the same bits.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/unit/ops/vector_math_simd.h"

namespace pare {
namespace {

void apply(Isa isa, VectorFunction function, const std::vector<float>& x, std::vector<float>& y) {
  y.resize(x.size());
  const auto n = static_cast<std::int64_t>(x.size());
  if (isa == Isa::kScalar)
    simd_scalar::vector_math(function, x.data(), y.data(), n);
  else if (isa == Isa::kAvx2)
    simd_avx2::vector_math(function, x.data(), y.data(), n);
  else
    simd_avx512::vector_math(function, x.data(), y.data(), n);
}

// Floats of every exponent and sign, a prime step apart in their bits, with the special ones.
std::vector<float> all_exponents(std::uint32_t step) {
  std::vector<float> x = {0.0f, -0.0f, 1.0f, -1.0f, 0.55f, 0.927734375f, 88.72283f, 88.73f, -103.9f, -87.4f};
  for (std::uint64_t bits = 0; bits < (1ull << 32); bits += step) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::isfinite(value)) x.push_back(value);
  }
  return x;
}

// |y - exact| in units of the last place of the float nearest to the exact value.
double ulps(float y, double exact) {
  const auto nearest = static_cast<float>(exact);
  if (std::isinf(nearest)) return y == nearest ? 0 : 1e9;
  const int exponent = nearest == 0 ? -126 : std::max(std::ilogb(nearest), -126);
  return std::fabs(static_cast<double>(y) - exact) / std::ldexp(1.0, exponent - 23);
}

struct Bound {
  VectorFunction function;
  double (*exact)(double);
  double ulps;
};

class VectorMath : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (GetParam() > best_isa()) GTEST_SKIP() << "this processor has no " << name(GetParam());
  }
};

TEST_P(VectorMath, HoldsItsErrorBounds) {
  // The scalar class has the same bits (next test), so a coarser walk will do for it.
  const std::vector<float> x = all_exponents(GetParam() == Isa::kScalar ? 10007 : 1009);
  const Bound bounds[] = {
      {VectorFunction::kExp, [](double v) { return std::exp(v); }, 0.88},
      {VectorFunction::kTanh, [](double v) { return std::tanh(v); }, 1.9},
      {VectorFunction::kErf, [](double v) { return std::erf(v); }, 1.01},
      {VectorFunction::kSigmoid, [](double v) { return 1 / (1 + std::exp(-v)); }, 2.5},
  };
  for (const Bound& bound : bounds) {
    std::vector<float> y;
    apply(GetParam(), bound.function, x, y);
    double worst = 0;
    float where = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = ulps(y[i], bound.exact(static_cast<double>(x[i])));
      if (error > worst) worst = error, where = x[i];
    }
    EXPECT_LE(worst, bound.ulps) << "function " << static_cast<int>(bound.function) << " at " << where;
    EXPECT_GE(worst, 0.75 * bound.ulps)
        << "function " << static_cast<int>(bound.function) << ": bound is loose";
  }
}

TEST_P(VectorMath, SameBitsInEveryClass) {
  std::vector<float> x = all_exponents(100003);
  x.insert(x.end(), {INFINITY, -INFINITY, NAN});
  for (int f = 0; f <= static_cast<int>(VectorFunction::kClip); ++f) {
    std::vector<float> scalar, y;
    apply(Isa::kScalar, static_cast<VectorFunction>(f), x, scalar);
    apply(GetParam(), static_cast<VectorFunction>(f), x, y);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(scalar[i]) && std::isnan(y[i])) continue;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(scalar[i]), std::bit_cast<std::uint32_t>(y[i]))
          << "function " << f << " at " << x[i] << ": " << scalar[i] << " and " << y[i];
    }
  }
}

TEST_P(VectorMath, SpecialValues) {
  struct Case {
    VectorFunction function;
    float x, y;
  };
  const Case cases[] = {
      {VectorFunction::kExp, 0.0f, 1.0f},         {VectorFunction::kExp, -INFINITY, 0.0f},
      {VectorFunction::kExp, INFINITY, INFINITY}, {VectorFunction::kExp, 100.0f, INFINITY},
      {VectorFunction::kExp, NAN, NAN},           {VectorFunction::kTanh, -0.0f, -0.0f},
      {VectorFunction::kTanh, INFINITY, 1.0f},    {VectorFunction::kTanh, -INFINITY, -1.0f},
      {VectorFunction::kTanh, NAN, NAN},          {VectorFunction::kErf, -0.0f, -0.0f},
      {VectorFunction::kErf, INFINITY, 1.0f},     {VectorFunction::kErf, -1e30f, -1.0f},
      {VectorFunction::kErf, NAN, NAN},           {VectorFunction::kSigmoid, -INFINITY, 0.0f},
      {VectorFunction::kSigmoid, INFINITY, 1.0f}, {VectorFunction::kSigmoid, NAN, NAN},
      {VectorFunction::kRelu, NAN, NAN},          {VectorFunction::kRelu, -3.0f, 0.0f},
      {VectorFunction::kClip, NAN, NAN},          {VectorFunction::kClip, 7.0f, 6.0f},
      {VectorFunction::kClip, -INFINITY, -1.0f},  {VectorFunction::kHardSwish, 3.5f, 3.5f},
      {VectorFunction::kHardSwish, -3.5f, -0.0f}, {VectorFunction::kHardSwish, NAN, NAN},
      {VectorFunction::kGelu, 10.0f, 10.0f},      {VectorFunction::kGelu, NAN, NAN},
  };
  for (const Case& c : cases) {
    // Every lane, and every length of a partial vector.
    for (std::size_t n = 1; n <= 33; ++n) {
      std::vector<float> x(n, c.x), y;
      apply(GetParam(), c.function, x, y);
      for (std::size_t i = 0; i < n; ++i) {
        if (std::isnan(c.y))
          EXPECT_TRUE(std::isnan(y[i])) << static_cast<int>(c.function);
        else
          EXPECT_EQ(std::bit_cast<std::uint32_t>(c.y), std::bit_cast<std::uint32_t>(y[i]))
              << static_cast<int>(c.function) << " of " << c.x << " is " << y[i];
      }
    }
  }
}

TEST_P(VectorMath, GeluErrsByLittleMoreThanAnUlpOfX) {
  std::vector<float> x, y;
  for (float v = -12; v < 12; v += 1.0f / 4096) x.push_back(v);
  apply(GetParam(), VectorFunction::kGelu, x, y);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = static_cast<double>(x[i]), exact = 0.5 * v * (1 + std::erf(v * M_SQRT1_2));
    ASSERT_LE(std::fabs(static_cast<double>(y[i]) - exact), 1.3 * std::ldexp(std::fabs(v), -23)) << v;
  }
}

INSTANTIATE_TEST_SUITE_P(Classes, VectorMath, ::testing::Values(Isa::kScalar, Isa::kAvx2, Isa::kAvx512),
                         [](const auto& tested) { return name(tested.param); });

}  // namespace
}  // namespace pare
