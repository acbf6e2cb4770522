// IEEE 754 binary16 ("half"): sign, 5 exponent bits (bias 15), 10 mantissa bits.
//
// Largest 65504 (0x7BFF), smallest normal 2^-14, smallest subnormal 2^-24; infinities 0x7C00, NaN above it.
// Encoding: round to nearest, ties to even; 65520 and above become infinity (ONNX Cast does not saturate
// here). NaN stays NaN with its sign and upper payload bits, made quiet, as the F16C instructions do: so
// scalar and vector conversions agree in every bit. -0 is kept.
#pragma once

#include "engine/numeric/minifloat.h"

namespace pare {

PARE_HD std::uint16_t encode_f16(float value) {
  const std::uint32_t bits = float_bits(value), magnitude = bits & ~kSignBit;
  const std::uint32_t finite = smaller(round_to_code<10, 15>(magnitude), 0x7C00);
  const std::uint32_t nan = 0x7E00 | (magnitude >> 13 & 0x3FF);
  return static_cast<std::uint16_t>((magnitude > kInfBits ? nan : finite) | (bits >> 16 & 0x8000));
}

PARE_HD float decode_f16(std::uint16_t code) {
  const std::uint32_t magnitude = code & 0x7FFFu, sign = static_cast<std::uint32_t>(code & 0x8000) << 16;
  const std::uint32_t finite = code_to_bits<10, 15>(magnitude);
  const std::uint32_t special = (magnitude > 0x7C00 ? kQuietNan : kInfBits) | (magnitude & 0x3FF) << 13;
  return bits_float((magnitude >= 0x7C00 ? special : finite) | sign);
}

}  // namespace pare
