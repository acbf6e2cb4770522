// The values that codes stand for, in units of the scale: what weight methods round to, one value at a time
// and in vectors. Plain data and inline code, for files that are compiled once an instruction class.
//
//   level   code - zero (integers), the decoded code (floats); a weight is level * scale
//
// Rounding is to nearest, ties to even codes, saturating: that of encode() in grid.h for any |x| (a NaN
// becomes a level of its own choosing: weights are finite here).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace pare::quant {

struct Ladder {
  bool integer = true;
  float low = 0, high = 0;  // integers: lowest and largest code; floats: -largest and largest
  int mantissa = 0;         // floats: stored bits
  float normal = 1;         // floats: smallest normal value, 2^e
  int code_shift = 0;       // floats: see index()
  int middle = 0;           // floats: index of zero
  int count = 0;
  const float* levels = nullptr;  // floats: [count], ascending

  // The level nearest to x.
  float round(float x, float zero) const {
    constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: adding it leaves no bits behind the point
    if (integer) {
      const float bounded = x < -70000.0f ? -70000.0f : x > 70000.0f ? 70000.0f : x;
      const float code = (bounded + kShift) - kShift + zero;
      return (code < low ? low : code > high ? high : code) - zero;
    }
    const float magnitude = std::fabs(x) < high ? std::fabs(x) : high;
    // Step of the binade: 2^(e - mantissa), e at least that of the smallest normal value.
    const std::uint32_t exponent = std::bit_cast<std::uint32_t>(magnitude) & 0x7F800000u;
    const std::uint32_t least = std::bit_cast<std::uint32_t>(normal);
    const std::uint32_t bits =
        (exponent > least ? exponent : least) - (static_cast<std::uint32_t>(mantissa) << 23);
    const float shift = std::bit_cast<float>(bits) * kShift;
    const float rounded = (magnitude + shift) - shift;
    return std::copysign(rounded < high ? rounded : high, x);
  }

  // Floats: the place of a level among all, ascending.
  int index(float level) const {
    const float magnitude = std::fabs(level);
    const int code =
        magnitude < normal
            ? static_cast<int>(magnitude / normal * static_cast<float>(1 << mantissa))
            : static_cast<int>(std::bit_cast<std::uint32_t>(magnitude) >> (23 - mantissa)) - code_shift;
    return level < 0 ? middle - code : middle + code;
  }
  // The next level in direction `up` (1 or -1); the same at the end.
  float next(float level, int up, float zero) const {
    if (integer) {
      const float code = level + zero + static_cast<float>(up);
      return code < low || code > high ? level : code - zero;
    }
    const int at = index(level) + up;
    return at < 0 || at >= count ? level : levels[at];
  }
};

}  // namespace pare::quant
