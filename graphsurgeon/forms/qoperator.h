// Quantized models in ONNX's two forms, and the way from one to the other:
//
//   QDQ         DequantizeLinear -> Conv -> QuantizeLinear   float operators between codes; any runtime fuses
//   QOperator   QLinearConv                                  one operator on codes
//
// Scales, zero points and codes stay the same bits; only how they are written changes. Results agree within
// one step of the output's scale: the float form rounds a product of floats, the integer form an exact sum.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

struct QuantizedFormReport {
  std::map<std::string, std::int64_t> converted;  // by operator of the source form
  struct Left {
    std::string node, why;
  };
  std::vector<Left> left;  // nodes between codes that have no counterpart, or cannot be written
};

// QLinearConv, QLinearMatMul, and of com.microsoft QLinearAdd, QLinearMul, QLinearSigmoid, QLinearLeakyRelu,
// QLinearSoftmax, QLinearConcat, QLinearAveragePool, QLinearGlobalAveragePool, QGemm. An int32 bias becomes a
// DequantizeLinear with scale s_x * s_w. Subgraphs included.
QuantizedFormReport to_qdq(Graph& graph);

// The operators above, and those that only move values (MaxPool, Reshape, Transpose, ...), where every input
// comes from a DequantizeLinear and only one QuantizeLinear reads the output. A Relu between is taken in
// where the zero point is the lowest code: saturation does the same. A constant float bias becomes int32
// codes where they fit. Left as they are, with the reason: negative scales, 4-bit and 16-bit codes, float8,
// blocks, scales of another type than float32, outputs that are read in float as well.
// Behind a DynamicQuantizeLinear, MatMul, Gemm and Conv with 8-bit weights (symmetric, per tensor or output
// channel) become MatMulInteger and ConvInteger; the sum is exact, its scale s_x * s_w.
QuantizedFormReport to_qoperator(Graph& graph);

}  // namespace pare
