// Internal to quant: codes of a group and their values, compiled once for every instruction class; all give
// the same bits, those of the scalar functions of engine/numeric.
#pragma once

#include <cstdint>

#include "engine/ops/simd.h"

namespace pare {

enum class GridCodes { kSigned, kUnsigned, kE4M3, kE5M2, kE2M1 };

struct GridStep {
  float scale = 1;
  std::int32_t zero = 0, low = 0, high = 0;  // integers: range of the codes
  std::uint8_t mask = 0xFF;                  // integers: bits of a code
};

// codes[n], one a byte, from w / scale, of groups of `width` neighbours, the last one perhaps short: group g
// has scales[g] and, unless `zeros` is nullptr, zeros[g]; of `step` only the rest counts. Integers: NaN gives
// the zero point.
PARE_SIMD_DECLARE(void grid_encode_groups(GridCodes type, const GridStep& step, const float* scales,
                                          const std::int32_t* zeros, const float* w, std::int64_t n,
                                          std::int64_t width, std::uint8_t* codes))
// values[n] = (code - zero) * scale. Integers only; bits beyond those of a code are ignored.
PARE_SIMD_DECLARE(void grid_decode(GridCodes type, const GridStep& step, const std::uint8_t* codes,
                                   std::int64_t n, float* values))
// values[n] = table[code] * scale: the other formats.
PARE_SIMD_DECLARE(void grid_look_up(const float* table, float scale, const std::uint8_t* codes,
                                    std::int64_t n, float* values))

}  // namespace pare
