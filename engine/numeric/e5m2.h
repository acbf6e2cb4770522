// FP8 E5M2, two encodings of one layout (sign, 5 exponent bits, 2 mantissa bits).
//
// E5M2 (OCP OFP8): bias 15, largest 57344
//   (0x7B), smallest normal 2^-14, step below that 2^-16. Infinity 0x7C,
//   NaN 0x7D to 0x7F (written as 0x7E), each with sign. -0 is 0x80.
// E5M2FNUZ: bias 16, largest 57344 (0x7F), smallest normal 2^-15, step below that 2^-17. No infinity, no -0;
//   the one NaN is 0x80.
//
// Encoding rounds to nearest, ties to even. encode_* saturates: what rounds beyond the largest value, and
// infinity, become the largest value with the sign of the input. encode_*_unsaturated (ONNX saturate = 0)
// gives infinity (E5M2) or NaN (FNUZ) for these. NaN gives NaN; E5M2 keeps its sign. Source: OCP 8-bit
// Floating Point Specification 1.0; ONNX Cast; arXiv 2206.02915 for FNUZ.
#pragma once

#include "engine/numeric/minifloat.h"

namespace pare {

PARE_HD std::uint8_t encode_e5m2(float value) {
  const std::uint32_t bits = float_bits(value), magnitude = bits & ~kSignBit;
  const std::uint32_t finite = smaller(round_to_code<2, 15>(magnitude), 0x7B);
  return static_cast<std::uint8_t>((magnitude > kInfBits ? 0x7E : finite) | (bits >> 24 & 0x80));
}

PARE_HD std::uint8_t encode_e5m2_unsaturated(float value) {
  const std::uint32_t bits = float_bits(value), magnitude = bits & ~kSignBit;
  const std::uint32_t finite = smaller(round_to_code<2, 15>(magnitude), 0x7C);
  return static_cast<std::uint8_t>((magnitude > kInfBits ? 0x7E : finite) | (bits >> 24 & 0x80));
}

PARE_HD float decode_e5m2(std::uint8_t code) {
  const std::uint32_t magnitude = code & 0x7Fu, sign = static_cast<std::uint32_t>(code & 0x80) << 24;
  const std::uint32_t special = magnitude == 0x7C ? kInfBits : kQuietNan;
  return bits_float((magnitude >= 0x7C ? special : code_to_bits<2, 15>(magnitude)) | sign);
}

PARE_HD std::uint8_t encode_e5m2fnuz(float value) {
  const std::uint32_t bits = float_bits(value), magnitude = bits & ~kSignBit;
  const std::uint32_t finite = smaller(round_to_code<2, 16>(magnitude), 0x7F);
  const std::uint32_t sign = finite == 0 ? 0 : bits >> 24 & 0x80;
  return static_cast<std::uint8_t>(magnitude > kInfBits ? 0x80 : finite | sign);
}

PARE_HD std::uint8_t encode_e5m2fnuz_unsaturated(float value) {
  const std::uint32_t bits = float_bits(value);
  const std::uint32_t code = round_to_code<2, 16>(bits & ~kSignBit);
  const std::uint32_t sign = code == 0 ? 0 : bits >> 24 & 0x80;
  return static_cast<std::uint8_t>(code > 0x7F ? 0x80 : code | sign);
}

PARE_HD float decode_e5m2fnuz(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80) << 24;
  return bits_float(code == 0x80 ? kQuietNan : code_to_bits<2, 16>(code & 0x7Fu) | sign);
}

}  // namespace pare
