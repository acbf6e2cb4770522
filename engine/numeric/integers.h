// Integer targets of quantization: int16, int8, int4, int2 and their unsigned forms, two's complement.
//
// encode_integer rounds to nearest, ties to even, adds nothing, and saturates at the type's range; infinity
// too. NaN gives 0 (a quantizer that adds a zero point afterwards thus gives the zero point: the code of
// 0.0). The value is clamped as a float before it becomes an integer, so nothing is undefined however large
// it is. 4 and 2 bit codes live in the low bits of a byte, the rest zero; packing is engine/numeric/pack.h.
#pragma once

#include "engine/numeric/minifloat.h"

namespace pare {

// Nearest integer, ties to even, of a value in [low, high]; values outside are clamped, NaN is 0.
// |low| and |high| at most 2^22: adding 1.5 * 2^23 then leaves the rounded integer in the low mantissa bits.
PARE_HD std::int32_t round_clamped(float value, float low, float high) {
  constexpr float kMagic = 12582912.0f;
  const float number = value == value ? value : 0.0f;
  const float above = number < low ? low : number;
  const float inside = above > high ? high : above;
  return static_cast<std::int32_t>(float_bits(inside + kMagic) - float_bits(kMagic));
}

// Range of a two's complement type of 2 to 16 bits.
PARE_HD std::int32_t integer_low(int bits, bool is_signed) { return is_signed ? -(1 << (bits - 1)) : 0; }
PARE_HD std::int32_t integer_high(int bits, bool is_signed) {
  return (1 << (is_signed ? bits - 1 : bits)) - 1;
}

// The code, in the low kBits of the result.
template <int kBits, bool kSigned>
PARE_HD std::uint32_t encode_integer(float value) {
  constexpr float kLow = static_cast<float>(integer_low(kBits, kSigned));
  constexpr float kHigh = static_cast<float>(integer_high(kBits, kSigned));
  return static_cast<std::uint32_t>(round_clamped(value, kLow, kHigh)) & ((1u << kBits) - 1);
}

// Value of the low kBits of `code`.
template <int kBits, bool kSigned>
PARE_HD std::int32_t decode_integer(std::uint32_t code) {
  const std::uint32_t low = code & ((1u << kBits) - 1);
  constexpr std::uint32_t kSign = kSigned ? 1u << (kBits - 1) : 0;
  return static_cast<std::int32_t>(low ^ kSign) - static_cast<std::int32_t>(kSign);
}

}  // namespace pare
