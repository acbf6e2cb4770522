// bfloat16: the upper half of a float32 (sign, 8 exponent bits, 7 mantissa bits).
//
// Encoding: round to nearest, ties to even; overflow becomes infinity. NaN keeps its sign and upper payload
// bits and is made quiet (cutting a NaN whose payload is all in the lower half would give infinity). -0 is
// kept. Decoding is exact: every code is the float32 with 16 zero bits below it.
#pragma once

#include "engine/numeric/minifloat.h"

namespace pare {

PARE_HD std::uint16_t encode_bf16(float value) {
  const std::uint32_t bits = float_bits(value);
  const std::uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  const std::uint32_t nan = bits >> 16 | 0x40;
  return static_cast<std::uint16_t>((bits & ~kSignBit) > kInfBits ? nan : rounded);
}

PARE_HD float decode_bf16(std::uint16_t code) { return bits_float(static_cast<std::uint32_t>(code) << 16); }

}  // namespace pare
