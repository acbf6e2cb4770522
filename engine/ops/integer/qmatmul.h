// pare.QMatMul: matrix products of 8 bit codes with exact sums: MatMul, Gemm, and both products of attention.
//
//   x s8|u8 [..., R, K], w s8|u8 [..., K, N], with trans_b [..., N, K]; the other inputs as in qlinear.h
//   y [..., R, N], float32, s8 or u8
//   acc[r][c] = sum over k of (x[r][k] - zx) * (w[k][c] - zw)
// Leading sizes broadcast as in ONNX MatMul; x needs rank 2 or more, w too. Attribute trans_b 0 | 1, and
// those of qlinear.h. w_scale and bias have one element a column, N.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/ops/integer/qlinear.h"

namespace pare::qmatmul {

struct Geometry {
  std::int64_t rows, k, n;
  bool trans_b;
  // One product a batch: where its x and w start, in matrices.
  std::vector<std::int64_t> x_matrix, w_matrix;
};
Geometry geometry(const OpCall& call);  // after why_not
std::string why_not(const OpCall& call);

Kernel gemm_kernel();
Kernel ref_kernel();

}  // namespace pare::qmatmul
