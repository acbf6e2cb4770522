// Depthwise convolution (one channel a group, one output a channel), vectorised over channels.
#pragma once

#include "engine/ops/conv/conv.h"
#include "engine/ops/simd.h"

namespace pare {

struct DepthwiseTask {
  const ConvGeometry* geometry = nullptr;
  const Activation* act = nullptr;
  const float* x = nullptr;
  const float* weights = nullptr;   // [kh][kw][C]
  const float* bias = nullptr;      // [C] or none
  const float* residual = nullptr;  // like y, or none
  const float* zeros = nullptr;     // C of them, for positions outside of x
  float* y = nullptr;
  const float** taps = nullptr;  // room for the kh * kw taps of one window; kernels of 3x3 and 5x5 need none
};

// Lines [begin, end) of y, counted over n and oy. The taps of a window are added in the order kh, kw.
PARE_SIMD_DECLARE(void depthwise_lines(const DepthwiseTask& task, std::int64_t begin, std::int64_t end))

}  // namespace pare
