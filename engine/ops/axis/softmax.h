// Softmax, LogSoftmax, Hardmax along one axis (opset 13: only that axis, default -1).
//
//   Softmax     exp(x - m) / sum of exp(x - m),  m the largest x of the axis
//   LogSoftmax  x - m - log(sum of exp(x - m))
//   Hardmax     1 at the first largest x, 0 elsewhere
//
// A NaN, or an infinite m, makes the whole line NaN (Softmax, LogSoftmax). float32, float64, float16,
// bfloat16; the narrow ones are computed in float32. The vector kernel sums a contiguous line as rows_simd.h
// says, others in ascending order; its error is that of exp (0.9 units) and of a sum of n positive terms in
// 16 lanes, at most (n / 16 + 5) units relative. Source: ONNX Softmax-13.
#pragma once

#include <cstdint>

#include "engine/ops/simd.h"

namespace pare {

// rows of n contiguous floats; y may be x.
PARE_SIMD_DECLARE(void softmax_rows(const float* x, float* y, std::int64_t rows, std::int64_t n,
                                    bool logarithm))
// [n, inner]: lines with stride `inner`, columns [begin, end) of them.
PARE_SIMD_DECLARE(void softmax_columns(const float* x, float* y, std::int64_t n, std::int64_t inner,
                                       std::int64_t begin, std::int64_t end, bool logarithm))

class Registry;
void add_softmax_kernels(Registry& registry);

}  // namespace pare
