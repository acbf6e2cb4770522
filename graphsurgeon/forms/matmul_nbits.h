// Products with weights of 2, 4 or 8 bits as com.microsoft's MatMulNBits, the form that ONNX Runtime has
// kernels for. Reading such files back gives Q/DQ again (onnx/raise_microsoft_quantized.cpp).
//
//   MatMul(A, W), Gemm(A, W, C) with W = DequantizeLinear of constant codes, in blocks along the summed axis
//   becomes MatMulNBits(A, B, scales, zero_points, , C)
//
//   B            uint8 [N, blocks, block_size * bits / 8], the first code of the summed axis in the low bits;
//                signed codes get 2^(bits - 1) added; a short last block is filled with codes of 0.0
//   scales       float32 [N * blocks]
//   zero_points  uint8, rows of `blocks` codes padded to whole bytes; left out where it is 2^(bits - 1)
//
// Left as they are, with the reason: block sizes that are no power of two from 16 on (a single block counts
// as the next one), other types, products of more than a matrix of weights, transA, alpha, beta.
// Source: ONNX Runtime contrib operator documentation, MatMulNBits version 1.
#pragma once

#include "graphsurgeon/forms/qoperator.h"

namespace pare {

// accuracy_level (ONNX Runtime): 0 as the model's types, 1 float32, 2 float16, 3 bfloat16, 4 int8.
QuantizedFormReport to_matmul_nbits(Graph& graph, int accuracy_level = 0);

}  // namespace pare
