// FP8 E4M3, two encodings of one layout (sign, 4 exponent bits, 3 mantissa bits).
//
// E4M3FN (OCP OFP8; "e4m3" without more): bias 7, largest 448 (0x7E), smallest normal 2^-6, step below that
// 2^-9.
//   No infinity. NaN is 0x7F and 0xFF. -0 is 0x80.
// E4M3FNUZ: bias 8, largest 240 (0x7F), smallest normal 2^-7, step below that 2^-10. No infinity, no -0
//   (values that round to -0 give 0); the one NaN is 0x80.
//
// Encoding rounds to nearest, ties to even. encode_* saturates: what rounds beyond the largest value, and
// infinity, become the largest value with the sign of the input. encode_*_unsaturated (ONNX Cast and
// QuantizeLinear with saturate = 0) gives NaN for these. NaN gives NaN; E4M3FN keeps its sign.
// Source: OCP 8-bit Floating Point Specification 1.0; ONNX Cast; arXiv 2206.02915 for FNUZ.
#pragma once

#include "engine/numeric/minifloat.h"

namespace pare {

PARE_HD std::uint8_t encode_e4m3(float value) {
  const std::uint32_t bits = float_bits(value), magnitude = bits & ~kSignBit;
  const std::uint32_t finite = smaller(round_to_code<3, 7>(magnitude), 0x7E);
  return static_cast<std::uint8_t>((magnitude > kInfBits ? 0x7F : finite) | (bits >> 24 & 0x80));
}

PARE_HD std::uint8_t encode_e4m3_unsaturated(float value) {
  const std::uint32_t bits = float_bits(value);
  // 0x7F is both the first code beyond the largest and NaN; a NaN's own bits give a code above it.
  return static_cast<std::uint8_t>(smaller(round_to_code<3, 7>(bits & ~kSignBit), 0x7F) |
                                   (bits >> 24 & 0x80));
}

PARE_HD float decode_e4m3(std::uint8_t code) {
  const std::uint32_t magnitude = code & 0x7Fu, sign = static_cast<std::uint32_t>(code & 0x80) << 24;
  return bits_float((magnitude == 0x7F ? kQuietNan : code_to_bits<3, 7>(magnitude)) | sign);
}

// decode_e4m3(encode_e4m3(x)) of 0 <= x <= 448, by a few sums: what scales are rounded by, many at a time.
PARE_HD float nearest_e4m3(float x) {
  const std::uint32_t bits = float_bits(x);
  const float normal = bits_float((bits + 0x7FFFFu + (bits >> 20 & 1)) & 0xFFF00000u);
  const float small = (x + 0x1.8p14f) - 0x1.8p14f;  // to a multiple of 2^-9
  return x < 0x1p-6f ? small : normal;
}

PARE_HD std::uint8_t encode_e4m3fnuz(float value) {
  const std::uint32_t bits = float_bits(value), magnitude = bits & ~kSignBit;
  const std::uint32_t finite = smaller(round_to_code<3, 8>(magnitude), 0x7F);
  const std::uint32_t sign = finite == 0 ? 0 : bits >> 24 & 0x80;
  return static_cast<std::uint8_t>(magnitude > kInfBits ? 0x80 : finite | sign);
}

PARE_HD std::uint8_t encode_e4m3fnuz_unsaturated(float value) {
  const std::uint32_t bits = float_bits(value);
  const std::uint32_t code = round_to_code<3, 8>(bits & ~kSignBit);
  const std::uint32_t sign = code == 0 ? 0 : bits >> 24 & 0x80;
  return static_cast<std::uint8_t>(code > 0x7F ? 0x80 : code | sign);
}

PARE_HD float decode_e4m3fnuz(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80) << 24;
  return bits_float(code == 0x80 ? kQuietNan : code_to_bits<3, 8>(code & 0x7Fu) | sign);
}

}  // namespace pare
