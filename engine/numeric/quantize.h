// QuantizeLinear and DequantizeLinear of ONNX over arrays, and the two fused into one ("fake quantization").
//
//   q = saturate(rne(x / s) + z)      y = (q - z) * s           integers: int8 to int2, uint8 to uint2,
//   (u)int16 q = encode(x / s)                 y = decode(q) * s         FP8 pairs, E2M1; z must be absent or
//   0
//
// x / s is a true division in float32 (not a product with 1/s), rounding is to nearest, ties to even, before
// z is added, and clamping happens in float, so no value is undefined. fake_quantize gives the bits that
// quantize and then dequantize give. Vector and scalar paths give the same bits. Runs on the calling thread.
//
// NaN in x: integers get z (the code of 0.0), FP8 formats their NaN, E2M1 +6. Infinity saturates (FP8 with
// saturate = false: NaN or infinity). s = 0: x / s is infinite or NaN and treated so. Negative s is allowed.
// Sources: ONNX QuantizeLinear-25, DequantizeLinear-25.
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/base/tensor.h"

namespace pare {

// Which elements share a scale: the tensor seen as [outer, channels, inner], row-major.
//   per tensor   one scale
//   per channel  scale[c]
//   blocked      scale[outer][ceil(channels / block)][inner]: `block` neighbours along the channel axis share
//   one;
//                the last block may be short
struct ScaleLayout {
  enum class Kind { kTensor, kChannel, kBlock };
  Kind kind = Kind::kTensor;
  std::int64_t outer = 1, channels = 1, inner = 0, block = 1;

  static ScaleLayout per_tensor(std::int64_t count);
  // axis may be negative (from the back). Error kUsage if out of range.
  static ScaleLayout per_channel(const Dims& dims, std::int64_t axis);
  static ScaleLayout blocked(const Dims& dims, std::int64_t axis, std::int64_t block);

  std::int64_t count() const { return outer * channels * inner; }  // elements
  std::int64_t scales() const;                                     // scales needed
};

struct QuantTarget {
  DType type = DType::kI8;
  bool saturate = true;           // FP8 only
  DType precision = DType::kF32;  // type of the division: kF16 and kBF16 round x / s to it first
};

// zero_points: as many as scales, or nullptr for zeros; each within the range of the integer type.
// Codes are packed as tensors are. Errors: kUnsupported for other types; kUsage for a zero point out of
// range, or not zero where the type has none.
void quantize(const float* x, const ScaleLayout& layout, const float* scales, const std::int32_t* zero_points,
              const QuantTarget& target, void* codes);

// Also int32 codes (biases), without zero points. Codes need no alignment.
void dequantize(DType type, const void* codes, const ScaleLayout& layout, const float* scales,
                const std::int32_t* zero_points, float* y);

// y may be x.
void fake_quantize(const float* x, const ScaleLayout& layout, const float* scales,
                   const std::int32_t* zero_points, const QuantTarget& target, float* y);

}  // namespace pare
