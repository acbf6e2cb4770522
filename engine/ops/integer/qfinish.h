// What becomes of an exact integer sum: one formula for every integer kernel.
//
//   v = float(acc) * scale[c]              scale[c] = sx * sw[c], one rounded product, made beforehand
//   v = v + bias[c]
//   v = v + residual                       float32, or (code - zero) * scale
//   v = activation(v)                      activation.h, by vector_math.h
//   y = v                                  float32, or
//   y = saturate(rne(v / sy) + zy)         int8, uint8: true division, as QuantizeLinear (NaN becomes zy)
//
// Each step rounds once to float32 (no fused multiply-add between them); acc to float rounds to nearest even.
// So a result depends on acc and these parameters alone, and has the same bits in every instruction class.
//
// Against the fake-quantized float graph, which sums the products (a - za) * sx * (w - zw) * sw[c] of K terms
// in float: with u = 2^-24 and S = sum of |terms|, both are within (K + 3) * u * S of the real value, plus
// one rounding each for bias, residual and activation. A quantized output may thus differ by one step where
// the real value lies that close to the middle between two codes.
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/ops/activation.h"
#include "engine/ops/simd.h"

namespace pare {

struct QFinish {
  // [columns], readable up to the next multiple of 16.
  const float* scale = nullptr;
  const float* bias = nullptr;  // nullptr: none

  const void* residual = nullptr;  // element (row, column) at row * residual_stride + column; nullptr: none
  std::int64_t residual_stride = 0;
  DType residual_type = DType::kF32;  // kF32, kI8, kU8
  float residual_scale = 1;
  std::int32_t residual_zero = 0;

  Activation activation;

  void* y = nullptr;  // like residual
  std::int64_t y_stride = 0;
  DType y_type = DType::kF32;  // kF32, kI8, kU8
  float y_scale = 1;
  std::int32_t y_zero = 0;
};

// Rows [row, row + rows) and columns [column, column + columns) of y from acc[r * acc_stride + c]. acc is
// readable up to the next multiple of 16 columns; y and residual are not.
PARE_SIMD_DECLARE(void q_finish(const QFinish& f, const std::int32_t* acc, std::int64_t acc_stride,
                                std::int64_t row, int rows, std::int64_t column, std::int64_t columns))

}  // namespace pare
