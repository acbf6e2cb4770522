// FP4 E2M1 (OCP MX; ONNX FLOAT4E2M1): sign, 2 exponent bits (bias 1), 1 mantissa bit.
//
// Codes 0 to 7 are 0, 0.5, 1, 1.5, 2, 3, 4, 6; codes 8 to 15 the same negative, so 8 is -0. No infinity, no
// NaN. A code is in the low 4 bits of a byte, the upper 4 zero; packing is engine/numeric/pack.h.
//
// Encoding rounds to nearest, ties to the even mantissa (0.25 -> 0, 0.75 -> 1, 1.25 -> 1, 1.75 -> 2, 2.5 ->
// 2, 3.5 -> 4, 5 -> 4) and saturates at 6, infinity included. Small negative values and -0 give code 8. NaN
// gives +6, whatever its sign (ONNX Cast, CUDA). Some writers break ties downwards: compare values, not their
// codes.
#pragma once

#include "engine/numeric/minifloat.h"

namespace pare {

PARE_HD std::uint8_t encode_e2m1(float value) {
  const std::uint32_t bits = float_bits(value), magnitude = bits & ~kSignBit;
  const std::uint32_t finite = smaller(round_to_code<1, 1>(magnitude), 7) | (bits >> 28 & 8);
  return static_cast<std::uint8_t>(magnitude > kInfBits ? 7 : finite);
}

// The upper 4 bits of `code` are ignored.
PARE_HD float decode_e2m1(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 8) << 28;
  return bits_float(code_to_bits<1, 1>(code & 7u) | sign);
}

}  // namespace pare
