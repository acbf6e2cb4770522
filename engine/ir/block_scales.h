// Codes whose scales a block of neighbours makes at run time, in standard operators (opset 23, E8M0 24):
//
//   m     largest magnitude of the block: Reshape [.., n / B, B, ..], Abs, ReduceMax
//   E4M3  s = DequantizeLinear(QuantizeLinear(max(m / L, 2^-9 G), G), G)   L the largest code, G a float32
//   E8M0  s = Cast(m / D), down to a power of two for E2M1 with D = 3.5: the floor of log2(m) after lifting
//         mantissas of 1.75 and more (they would be clipped hardest); up, with D the largest code, for others
//   F32   s = max(m / L, 2^-126): FP8 groups of 128
//   code  QuantizeLinear(x, s; axis, block_size)
//
// `fitted`: of a few scales for a block the one whose codes have the least squared error, the one above first
// (it stays where others are no better, and where something is NaN):
//
//   E4M3  m / (L t), t = 1, 2/3 (the two of Four Over Six), .75, .8, .85, .925, 1.08, 1.16
//   E8M0  2^floor(log2 m) over the largest power of two among the codes, and twice that; FP8 codes: as above,
//         and half of it
//   F32   s 2^(k / 8), k = 0 ... 7
//
// A size along the axis that B does not divide is padded with zeros for m; its last block is short. NaN
// anywhere in a block makes its scale NaN. Sources: ONNX QuantizeLinear-24; OCP MX 1.0; TensorRT's
// TRT_FP4DynamicQuantize; compressed-tensors' rule for MXFP4 scales; Four Over Six (arXiv 2512.02010).
#pragma once

#include <vector>

#include "engine/ir/graph.h"

namespace pare {

struct BlockScales {
  DType codes = DType::kE2M1;
  DType scales = DType::kE4M3FN;  // or E8M0, F32
  std::int64_t axis = -1, block = 16;
  bool fitted = false;  // scales by least squared error
};

// Where the operators go.
class OpWriter {
 public:
  virtual ~OpWriter() = default;
  // A node with one output; `what` it is of the whole, for names.
  virtual ValueId node(const char* what, const char* op, std::vector<ValueId> in, DType dtype,
                       const Shape& shape, const Attributes& attrs) = 0;
  virtual ValueId constant(const char* what, Tensor tensor) = 0;
};

struct BlockCodes {
  ValueId codes;
  ValueId scales;  // E4M3, E8M0 or F32
  ValueId scale;   // of the DequantizeLinear behind the codes: float32 behind E4M3, else `scales`
};

// `x` is float32 of a shape whose rank and size along the axis are known (else Error kUnsupported). `global`:
// float32 scalar, of E4M3 scales only.
BlockCodes write_block_quantize(OpWriter& writer, ValueId x, const Shape& shape, ValueId global,
                                const BlockScales& blocks);

// Attributes of the DequantizeLinear behind the codes.
Attributes block_dequantize_attributes(const BlockScales& blocks, int rank);

}  // namespace pare
