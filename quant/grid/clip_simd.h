// Internal to quant: errors of a group on several scales and what they cost, compiled once for every
// instruction class; all give the same bits.
#pragma once

#include <cstdint>

#include "engine/ops/simd.h"

namespace pare {

// Integers: error[n] = clamp(rne(w / scale), low, high) * scale - w. `low` and `high` are codes less the zero
// point.
PARE_SIMD_DECLARE(void clip_errors(const float* w, std::int64_t n, float scale, float low, float high,
                                   float* error))

// losses[t] = d_t G d_t^T for the `count` rows of d [count][n]; G [n][n] symmetric, its rows `stride` apart.
// d G in float32, by fused multiply-adds in the order of d; the sum with d in double, over eight lanes.
PARE_SIMD_DECLARE(void clip_losses(const float* d, std::int64_t count, std::int64_t n, const float* g,
                                   std::int64_t stride, double* losses))

}  // namespace pare
