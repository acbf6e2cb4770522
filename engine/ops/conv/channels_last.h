// Moving maps between layouts, and pooling them channels-last.
//
//   pare.ToChannelsLast     [N,C,spatial...] -> [N,spatial...,C], any element type of whole bytes
//   pare.ToPlain            the way back
//   pare.MaxPool, pare.AveragePool, pare.GlobalAveragePool
//                           x, y float32 [N,spatial...,C], one or two spatial axes; attributes kernel_shape,
//                           strides, pads, dilations, ceil_mode, count_include_pad as in ONNX
//
// MaxPool: padding never wins; NaN in a window gives NaN. AveragePool: the sum of the window in the order of
// its rows, divided by the positions inside of x (with count_include_pad: inside of x and its padding).
// GlobalAveragePool: the sum over all positions in order, divided by their number. A mean of nothing (an
// empty plane, a dilated window wholly in padding) is NaN, as in ops/pool.h.
#pragma once

#include "engine/ops/kernel.h"
#include "engine/ops/simd.h"

namespace pare {

struct PoolGeometry {
  std::int64_t n = 0, h = 1, w = 1, c = 0, oh = 1, ow = 1;
  std::int64_t kh = 1, kw = 1, sh = 1, sw = 1, dh = 1, dw = 1;
  std::int64_t top = 0, left = 0, bottom = 0, right = 0;
  bool count_pad = false;
  bool max = false;
};

// "" or why a call of one of the three pools cannot run.
std::string resolve_pool(const OpCall& call, PoolGeometry& geometry);

// Lines [begin, end) of y, counted over n and oy.
PARE_SIMD_DECLARE(void pool_lines(const PoolGeometry& g, const float* x, float* y, std::int64_t begin,
                                  std::int64_t end))

// to[j * to_stride + i] = from[i * from_stride + j] for i < rows, j < columns; 4 byte elements.
PARE_SIMD_DECLARE(void transpose_words(const std::uint32_t* from, std::int64_t from_stride, std::uint32_t* to,
                                       std::int64_t to_stride, std::int64_t rows, std::int64_t columns))

}  // namespace pare
