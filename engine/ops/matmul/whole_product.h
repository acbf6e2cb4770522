// A product by gemm_f32_task on one thread, all of it.
#pragma once

#include "engine/ops/matmul/gemm_f32.h"

namespace pare {

// c [m][n] = a [m][k] b, rows lda and ldc apart; b packed by pack_b.
inline GemmTask whole_product(const float* a, std::int64_t lda, const float* packed, float* c,
                              std::int64_t ldc, std::int64_t m, std::int64_t k, std::int64_t n) {
  GemmTask task;
  task.a = a, task.lda = lda, task.b = packed;
  task.c = c, task.ldc = ldc;
  task.m = m, task.k = k, task.n = n;
  task.panel_end = gemm_panels(n);
  return task;
}

}  // namespace pare
