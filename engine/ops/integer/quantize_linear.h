// QuantizeLinear, DequantizeLinear (ONNX opset 25) and pare.FakeQuant, the two in one pass.
//
//   QuantizeLinear    x f32, scale f32, zero point (optional) -> codes: int8 to int2, unsigned ones, int16,
//                     uint16, FP8, E2M1
//   DequantizeLinear  codes (also int32), scale f32, zero point (optional) -> f32
//   FakeQuant         x f32, scale f32, zero point (optional) -> f32, the bits of DequantizeLinear(
//                     QuantizeLinear(x)); attribute code_dtype says through which type (a DType number)
//
// Attributes axis (1), block_size (0), saturate (1), precision (0) as in ONNX; the scale is one element, one
// an element of the axis, or blocked. Arithmetic, NaN and infinity: engine/numeric/quantize.h. A zero point
// of a floating type, or of int32, must be 0.
#pragma once

#include <string>
#include <vector>

#include "engine/numeric/quantize.h"
#include "engine/ops/kernel.h"

namespace pare::quantize_linear {

enum class Direction { kQuantize, kDequantize, kFake };

struct Parameters {
  ScaleLayout layout;
  QuantTarget target;
  const float* scales;
  std::vector<std::int32_t> zero_points;  // empty: zeros
  const std::int32_t* zeros() const { return zero_points.empty() ? nullptr : zero_points.data(); }
};
DType code_type(const OpCall& call, Direction direction);
Parameters parameters(const OpCall& call, Direction direction);  // in run
std::string why_not(const OpCall& call, Direction direction);

Kernel quantize_rows_kernel();  // vector loops of engine/numeric, cut over threads
Kernel dequantize_rows_kernel();
Kernel fake_quant_rows_kernel();
Kernel quantize_narrow_kernel();  // float16, bfloat16, int32; scales of E8M0
Kernel dequantize_narrow_kernel();
Kernel quantize_ref_kernel();  // the formula, element by element
Kernel dequantize_ref_kernel();
Kernel fake_quant_ref_kernel();

}  // namespace pare::quantize_linear
