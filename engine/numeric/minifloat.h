// The arithmetic that all IEEE-like formats below 32 bits share: exponent and mantissa fields with bias,
// subnormals, round to nearest even. What differs (infinities, NaN, saturation, -0) is in each format's
// header.
//
// A "magnitude code" is a code without its sign: exponent field above mantissa field. Codes of one format are
// ordered like their values, so saturation is a minimum of integers, and rounding up across a binade is a
// carry.
#pragma once

#include "engine/numeric/hd.h"

namespace pare {

inline constexpr std::uint32_t kSignBit = 0x80000000u;
inline constexpr std::uint32_t kInfBits = 0x7F800000u;  // magnitude bits above this are a NaN
inline constexpr std::uint32_t kQuietNan = 0x7FC00000u;

// Magnitude code nearest to the float32 whose magnitude bits are given; ties to even. Not bounded above: a
// value beyond the format's largest gives a code beyond its largest. NaN bits give some code above every
// finite one.
template <int kMantissa, int kBias>
PARE_HD std::uint32_t round_to_code(std::uint32_t magnitude) {
  constexpr int kDrop = 23 - kMantissa;
  constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << 23;
  constexpr std::uint32_t kSmallestNormal = static_cast<std::uint32_t>(128 - kBias) << 23;
  // A power of two whose unit in the last place is the step of the subnormals: the processor's own addition
  // rounds to that step, ties to even.
  constexpr std::uint32_t kMagic = static_cast<std::uint32_t>(151 - kBias - kMantissa) << 23;

  const std::uint32_t half = (1u << (kDrop - 1)) - 1 + ((magnitude >> kDrop) & 1);
  const std::uint32_t normal = (magnitude + half - kRebias) >> kDrop;
  const std::uint32_t subnormal = float_bits(bits_float(magnitude) + bits_float(kMagic)) - kMagic;
  return magnitude < kSmallestNormal ? subnormal : normal;
}

// Float32 magnitude bits of a finite magnitude code; exact.
template <int kMantissa, int kBias>
PARE_HD std::uint32_t code_to_bits(std::uint32_t code) {
  constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << 23;
  constexpr std::uint32_t kStep = static_cast<std::uint32_t>(128 - kBias - kMantissa) << 23;
  const std::uint32_t normal = (code << (23 - kMantissa)) + kRebias;
  const std::uint32_t subnormal =
      float_bits(static_cast<float>(static_cast<std::int32_t>(code)) * bits_float(kStep));
  return code < (1u << kMantissa) ? subnormal : normal;
}

PARE_HD std::uint32_t smaller(std::uint32_t a, std::uint32_t b) { return a < b ? a : b; }

}  // namespace pare
