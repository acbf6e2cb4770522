// Winograd's F(2x2, 3x3) in integers, exact: 16 products for four outputs of a 3x3 convolution instead of 36.
//
//   V = B' d B     d: 4x4 codes minus zero point, |d| <= 255, so |V| <= 1020
//   U = G w G'     G here is twice the usual one, so that it is integral: |U| <= 9 * 128 (or 9 * 255)
//   4 y = A' (sum over channels of U * V) A
//
//       1  0 -1  0        2  0  0        1  1  1  0
//   B' =0  1  1  0    G = 1  1  1    A' =0  1 -1 -1
//       0 -1  1  0        1 -1  1
//       0  1  0 -1        0  0  2
//
// U and V fit int16, sums are taken in int32 by pmaddwd. They may wrap; 4 y does not as long as 4 * 9 * C
// products stay below 2^31, so y is exact. Worth it where a product has 16 bits anyway (no VNNI).
// Source: A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks, 2015 (arXiv:1509.09308).
#pragma once

#include <cstdint>

#include "engine/ops/simd.h"

namespace pare {

// V of all channels: x[i] points at code i of the 4x4 (row by row), channels side by side, and `zero` is
// taken from each. Entry i of channel c goes to v[i * entry_stride + c], up to the next multiple of 16
// channels.
PARE_SIMD_DECLARE(void winograd_input(const std::uint8_t* const* x, bool is_signed, std::int32_t zero,
                                      std::int64_t channels, std::int16_t* v, std::int64_t entry_stride))

// y[i * columns + c], i = 0..3 row by row, from m[entry * entry_stride + c]; columns is a multiple of 16.
PARE_SIMD_DECLARE(void winograd_output(const std::int32_t* m, std::int64_t entry_stride, std::int32_t* y,
                                       int columns))

}  // namespace pare
