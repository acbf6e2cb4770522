// Gram matrices of many small groups that lie interleaved (gram.h).
#pragma once

#include "engine/ops/simd.h"

namespace pare {

// For `lanes` groups side by side: sums[g * sums_stride + index(i, j)] += sum over k positions of
// x[p * width + i * step + g] * x[p * width + j * step + g], a float32 chain of fused multiply-adds in order.
PARE_SIMD_DECLARE(void gram_small(const float* x, std::int64_t k, std::int64_t width, std::int64_t n,
                                  std::int64_t step, std::int64_t lanes, double* sums,
                                  std::int64_t sums_stride))

}  // namespace pare
