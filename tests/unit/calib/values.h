// Values for the tests of calibration: reproducible, with the ugly ones among them.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "calib/tensor_stats.h"
#include "datasets/random.h"

namespace pare {

// Normal numbers of a scale, a third of them set to zero (as a ReLU leaves them) when `relu`.
inline std::vector<float> normal_values(std::int64_t n, std::uint64_t seed, float scale = 1,
                                        bool relu = false) {
  SplitMix random(seed);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& v : values) {
    v = random.normal() * scale;
    if (relu && v < 0) v = 0;
  }
  return values;
}

// Every kind of float32: random bit patterns, so all exponents, subnormals, NaN of many payloads, infinities,
// zeros.
inline std::vector<float> wild_values(std::int64_t n, std::uint64_t seed) {
  SplitMix random(seed);
  std::vector<float> values(static_cast<std::size_t>(n));
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float special[] = {0.0f,           -0.0f,  kInf,    -kInf,           std::nanf(""),
                           -std::nanf(""), 1e-45f, -1e-45f, 1.17549435e-38f, 3.4028235e38f,
                           -3.4028235e38f, 1.0f};
  for (float& v : values) {
    const std::uint64_t bits = random.next();
    if (bits >> 60 == 0) {
      v = special[bits % 12];
    } else {
      const auto code = static_cast<std::uint32_t>(bits);
      static_assert(sizeof code == sizeof v);
      __builtin_memcpy(&v, &code, 4);
    }
  }
  return values;
}

// The definition of tensor_stats.h, value by value, in double.
inline TensorStats count_plainly(const std::vector<float>& values, const char* name = "") {
  TensorStats s;
  s.name = name;
  double largest = 0;
  bool first = true;
  for (const float v : values) {
    ++s.total;
    s.nan += std::isnan(v);
    s.positive_inf += std::isinf(v) && v > 0;
    s.negative_inf += std::isinf(v) && v < 0;
    s.zeros += v == 0;
    if (!std::isfinite(v)) continue;
    largest = std::max(largest, std::abs(static_cast<double>(v)));
    if (first || v < s.min) s.min = v == 0 ? 0.0f : v;
    if (first || v > s.max) s.max = v == 0 ? 0.0f : v;
    first = false;
  }
  s.exponent = -126;
  while (largest >= std::ldexp(4096.0, s.exponent)) ++s.exponent;
  for (const float v : values) {
    if (!std::isfinite(v) || v == 0) continue;
    const double bin = std::floor(std::abs(static_cast<double>(v)) / std::ldexp(1.0, s.exponent));
    ++s.bins[static_cast<std::size_t>(bin) + (v < 0 ? 4096 : 0)];
  }
  return s;
}

}  // namespace pare
