// E8M0 (OCP MX scale; ONNX FLOAT8E8M0): a power of two, 2^(code - 127). 0xFF is NaN. No zero, no sign, no
// infinity.
//
// Encoding rounds to a power of two: up (to the next one at or above; ONNX's default, and CUDA's), down (at
// or below), or nearest (arithmetically; a tie, 1.5 times a power of two, goes up).
//   saturating (default): 0 and -0 -> 0
//     (2^-127, the smallest), below the smallest -> 0, infinity and beyond the
//     largest -> 0xFE (2^127).
//   not saturating: all of these -> NaN.
// NaN -> NaN. Negative values, which ONNX leaves unspecified, -> NaN: they have no code and must not be
// swallowed. ONNX's Python helper differs below 2^-126, where it looks only at the exponent field; here the
// value decides.
#pragma once

#include "engine/numeric/minifloat.h"

namespace pare {

enum class E8m0Round { kUp, kDown, kNearest };

PARE_HD std::uint8_t encode_e8m0(float value, E8m0Round round = E8m0Round::kUp, bool saturate = true) {
  const std::uint32_t bits = float_bits(value), magnitude = bits & ~kSignBit;
  // Above 2^-126 the code is the exponent field, rounded. Below it lie 2^-127 (0x400000) and what rounds to
  // it.
  const std::uint32_t add = round == E8m0Round::kUp ? 0x7FFFFFu : round == E8m0Round::kDown ? 0u : 0x400000u;
  const std::uint32_t to_one = round == E8m0Round::kUp     ? 0x400001u
                               : round == E8m0Round::kDown ? 0x800000u
                                                           : 0x600000u;
  const std::uint32_t normal = (magnitude + add) >> 23;
  const std::uint32_t code = magnitude < 0x800000u ? (magnitude >= to_one ? 1u : 0u) : normal;
  const bool too_small = magnitude<0x400000u, too_large = code> 0xFE || magnitude >= kInfBits;
  const bool nan = magnitude > kInfBits || (bits > kSignBit) || (!saturate && (too_small || too_large));
  return static_cast<std::uint8_t>(nan ? 0xFF : smaller(code, 0xFE));
}

PARE_HD float decode_e8m0(std::uint8_t code) {
  const std::uint32_t bits = code == 0 ? 0x400000u : static_cast<std::uint32_t>(code) << 23;
  return bits_float(code == 0xFF ? kQuietNan : bits);
}

}  // namespace pare
