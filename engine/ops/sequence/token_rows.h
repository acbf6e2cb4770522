// Rows of logits, for language models: their logarithm of a sum, and how far two of them are apart.
//
// Exponentials in float32 (vector_math.h), sums of 512 at a time as rows_simd.h says, those in double. So
// results are the same in every instruction class; a sum is within 40 * 2^-24 of its exact value, relative.
#pragma once

#include <cstdint>

#include "engine/ops/simd.h"

namespace pare {

// With m the largest of p: weight = sum of exp(p[i] - m), sum = sum of exp(p[i] - m) * (p[i] - q[i]). Then
//   log sum exp(p) = m + log(weight)
//   KL(softmax(p) || softmax(q)) = sum / weight - (log sum exp(p) - log sum exp(q))
struct RowDistance {
  double largest = 0, weight = 0, sum = 0;
};

// n > 0. NaN anywhere, or an infinite largest value, makes the results NaN.
PARE_SIMD_DECLARE(double row_log_sum_exp(const float* x, std::int64_t n))
PARE_SIMD_DECLARE(RowDistance row_distance(const float* p, const float* q, std::int64_t n))

}  // namespace pare
