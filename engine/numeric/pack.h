// Packing of 4 and 2 bit codes as ONNX stores them: over the flattened array, the first code in the lowest
// bits of a byte, ceil(n * bits / 8) bytes, unused bits of the last byte zero, no padding of rows.
//
// `bits` is 4, 2 or 8 (a copy). One code a byte on the unpacked side, in its low bits: packing ignores the
// upper ones, unpacking leaves them zero (signed formats: decode_integer extends the sign). Any alignment; n
// >= 0; the ranges must not overlap.
#pragma once

#include <cstdint>

namespace pare {

void pack_codes(int bits, const std::uint8_t* codes, void* packed, std::int64_t n);
void unpack_codes(int bits, const void* packed, std::uint8_t* codes, std::int64_t n);

inline std::int64_t packed_bytes(int bits, std::int64_t n) { return (n * bits + 7) / 8; }

// Code `index` of a packed array.
inline std::uint8_t packed_code(int bits, const void* packed, std::int64_t index) {
  const std::int64_t at = index * bits;
  const unsigned byte = static_cast<const std::uint8_t*>(packed)[at / 8];
  return static_cast<std::uint8_t>(byte >> (at % 8) & ((1u << bits) - 1));
}

}  // namespace pare
