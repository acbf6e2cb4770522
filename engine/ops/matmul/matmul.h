// Matrix products as operators: MatMul, Gemm and the lowered pare.MatMul.
//
//   MatMul       y = a b, NumPy's rules for rank 1 and for broadcasting the leading dimensions
//   Gemm         y = alpha * op(a) op(b) + beta * c, rank 2; c broadcasts to [M,N]
//   pare.MatMul  y = act(alpha * a op(b) + bias + residual)
//                a [..., M, K]; b [..., K, N], with trans_b = 1 [..., N, K]; bias N values;
//                residual of y's shape. Attributes: trans_b, alpha, activation (activation.h)
//
// Float32; sums as gemm_f32.h says.
#pragma once

#include <string>
#include <vector>

#include "engine/ops/activation.h"
#include "engine/ops/kernel.h"

namespace pare {

// One call, reduced to a list of equal products.
struct MatMulShape {
  std::int64_t m = 0, k = 0, n = 0;
  std::int64_t b_stride_k = 0, b_stride_n = 0;  // of one b matrix, in elements
  bool trans_a = false;                         // a matrix is [k][m]
  std::vector<std::int64_t> a_index, b_index;   // for each product of the batch, which a and b matrix
  std::int64_t b_matrices = 0;
  float alpha = 1, beta = 1;
  Activation act;
};

// Resolves dims and attributes of any of the three operators. "" or what is wrong with them.
std::string resolve_matmul(const OpCall& call, MatMulShape& shape);

}  // namespace pare
