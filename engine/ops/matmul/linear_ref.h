// Plain kernels of the linear operators on plain (channels-first) tensors: Conv, ConvTranspose, MatMul, Gemm.
//
//   Conv           y[n,m,o] = bias[m] + sum over c, k of w[m,c,k] x[n, g*C/G + c, i],
//                  i = o*stride - begin + k*dilation
//   ConvTranspose  the transpose of that map; weight [C, M/G, k...]
//   MatMul         NumPy's, leading dimensions broadcast
//   Gemm           alpha op(A) op(B) + beta C
//   Det            the determinant of each matrix, by elimination with pivots, in double
//
// One to three spatial axes. float32, float64, float16, bfloat16 (sums in double, rounded once); MatMul and
// Gemm also (u)int32 and (u)int64, wrapping. Sums run over c, then k, in ascending order, for one output at a
// time, so the result depends on neither batch nor threads. Source: ONNX Conv-22, ConvTranspose-22,
// MatMul-13, Gemm-13.
#pragma once

#include "engine/base/tensor.h"
#include "engine/ir/window.h"

namespace pare {

// Turns auto_pad and output_shape of a ConvTranspose into pads, which follow from its output size.
void resolve_transposed_pads(const Node& node, const Dims& x, const Dims& y, Window& window);

class Registry;
void add_linear_references(Registry& registry);

}  // namespace pare
