// The formats once more, written from their specifications in double and by search, sharing no code with
// engine/numeric: what the tests hold it against.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <ostream>
#include <vector>

#include "engine/base/dtype.h"

namespace pare::spec {

enum class Special {
  kIeee,  // top exponent: infinity, NaN
  kFn,    // only the last code is NaN, no infinity
  kFnuz,  // NaN is the code of -0, no infinity
  kNone   // all codes are numbers
};

struct Format {
  DType type;
  int exponent, mantissa, bias;
  Special special;

  int magnitudes() const { return 1 << (exponent + mantissa); }
  int sign_code() const { return magnitudes(); }
};

inline void PrintTo(const Format& f, std::ostream* out) { *out << name(f.type); }

inline const std::vector<Format>& formats() {
  static const std::vector<Format> all = {
      {DType::kF16, 5, 10, 15, Special::kIeee}, {DType::kBF16, 8, 7, 127, Special::kIeee},
      {DType::kE4M3FN, 4, 3, 7, Special::kFn},  {DType::kE4M3FNUZ, 4, 3, 8, Special::kFnuz},
      {DType::kE5M2, 5, 2, 15, Special::kIeee}, {DType::kE5M2FNUZ, 5, 2, 16, Special::kFnuz},
      {DType::kE2M1, 2, 1, 1, Special::kNone},
  };
  return all;
}

// Value of a code, straight from the table in the specification.
inline double value_of(const Format& f, int code) {
  const bool negative = (code & f.sign_code()) != 0;
  const int magnitude = code & (f.sign_code() - 1);
  const int exponent = magnitude >> f.mantissa, mantissa = magnitude & ((1 << f.mantissa) - 1);
  const int top = (1 << f.exponent) - 1, full = (1 << f.mantissa) - 1;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (f.special == Special::kFnuz && negative && magnitude == 0) return nan;
  if (f.special == Special::kFn && exponent == top && mantissa == full) return nan;
  if (f.special == Special::kIeee && exponent == top)
    return mantissa != 0 ? nan : (negative ? -1 : 1) * std::numeric_limits<double>::infinity();
  const double value = exponent == 0
                           ? std::ldexp(mantissa, 1 - f.bias - f.mantissa)
                           : std::ldexp((1 << f.mantissa) + mantissa, exponent - f.bias - f.mantissa);
  return negative ? -value : value;
}

// Finite magnitudes by magnitude code.
inline std::vector<double> finite_values(const Format& f) {
  std::vector<double> values;
  for (int code = 0; code < f.magnitudes() && std::isfinite(value_of(f, code)); ++code)
    values.push_back(value_of(f, code));
  return values;
}

// Magnitude code nearest to |value|, found by trying all codes (16 bit formats: those about the place where
// it would be inserted); a tie goes to the even code. So: saturating.
inline int nearest(const std::vector<double>& values, double value) {
  const double x = std::fmin(std::fabs(value), values.back());  // differences of huge values are all alike
  int first = 0, last = static_cast<int>(values.size()) - 1;
  if (last > 256) {
    const auto at = static_cast<int>(std::lower_bound(values.begin(), values.end(), x) - values.begin());
    first = std::max(first, at - 1);
    last = std::min(last, at + 1);
  }
  int best = first;
  for (int code = first; code <= last; ++code) {
    const double d = std::fabs(values[static_cast<std::size_t>(code)] - x);
    const double b = std::fabs(values[static_cast<std::size_t>(best)] - x);
    if (d < b || (d == b && code % 2 == 0)) best = code;
  }
  return best;
}

// Whether |value| rounds beyond the largest finite value, as if the exponent had no bound.
inline bool overflows(const std::vector<double>& values, double value) {
  const double largest = values.back(), step = largest - values[values.size() - 2];
  const double limit = largest + step / 2;
  const bool largest_is_odd = (values.size() - 1) % 2 != 0;
  return std::fabs(value) > limit || (std::fabs(value) == limit && largest_is_odd);
}

inline float from_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline std::uint32_t to_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

}  // namespace pare::spec
