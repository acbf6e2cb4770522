// Internal to graphsurgeon/checkpoint: loops over the codes of a layer, compiled once for every instruction
// class; all give the same bits.
#pragma once

#include <cstdint>

#include "engine/ops/simd.h"

namespace pare {

enum class LinearCodes { kSigned, kUnsigned, kE4M3, kE2M1 };

// Least and largest of codes[n] as numbers, signed or not; 0 and 0 for none.
PARE_SIMD_DECLARE(void linear_code_range(const std::uint8_t* codes, std::int64_t n, bool with_sign, int* low,
                                         int* high))

// values[n] = (code - zeros[g]) * steps[g], g = column / width: one row. `zeros` may be nullptr, and is for
// E4M3 and E2M1.
PARE_SIMD_DECLARE(void linear_values(LinearCodes type, const std::uint8_t* codes, std::int64_t n,
                                     std::int64_t width, const float* steps, const float* zeros,
                                     float* values))

// A hash of numbers, where -0 is 0: column c changes lane c % 32, each a bijection of what it was, so that a
// single wrong number is always seen.
inline constexpr int kHashLanes = 32;
PARE_SIMD_DECLARE(void linear_hash(const float* values, std::int64_t n, std::uint32_t* lanes))

}  // namespace pare
