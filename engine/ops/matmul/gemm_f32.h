// Matrix products in float32: C = act(alpha * A B + bias + residual).
//
// Each element of C is one chain of fused multiply-adds over k in ascending order, starting from zero:
//   s = 0;  s = fma(a[k], b[k], s) for k = 0 .. K-1;  y = act(alpha * s + bias + residual)
// with the sum rounded once a step and once for each term of the last line. It lives in a register from
// first to last, whatever M, N, the row, the number of threads or the instruction class. So results do not
// depend on any of those; |error| <= (K + 3) eps sum |a b| with eps = 2^-24.
//
// B is packed into panels of 2 vectors (gemm_panel() columns; the last panel may be one vector wide) in
// which the values of one k lie side by side. A is read in place.
#pragma once

#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/ops/activation.h"
#include "engine/ops/simd.h"

namespace pare {

// One thread's share: all m rows of `a` against panels [panel_begin, panel_end).
struct GemmTask {
  const float* a = nullptr;  // [m][k], rows lda apart
  std::int64_t lda = 0;
  const float* b = nullptr;  // pack_b's output
  float* c = nullptr;        // [m][n], rows ldc apart
  std::int64_t ldc = 0;
  std::int64_t m = 0, k = 0, n = 0;
  std::int64_t panel_begin = 0, panel_end = 0;
  float alpha = 1;
  const float* bias = nullptr;      // [n] or none
  const float* residual = nullptr;  // [m][n], rows ldr apart, or none. May be c
  std::int64_t ldr = 0;
  Activation act;
};

PARE_SIMD_DECLARE(void gemm_f32_task(const GemmTask& task))
PARE_SIMD_DECLARE(std::int64_t gemm_f32_panel())
PARE_SIMD_DECLARE(std::int64_t gemm_f32_packed_floats(std::int64_t k, std::int64_t n))
PARE_SIMD_DECLARE(void gemm_f32_pack(const float* b, std::int64_t stride_k, std::int64_t stride_n,
                                     std::int64_t k, std::int64_t n, float* packed))

// Columns of a panel in the class of isa(): 32, 16 or 2.
inline std::int64_t gemm_panel() { return PARE_SIMD_PICK(gemm_f32_panel)(); }
inline std::int64_t gemm_panels(std::int64_t n) { return (n + gemm_panel() - 1) / gemm_panel(); }
inline std::int64_t packed_b_floats(std::int64_t k, std::int64_t n) {
  return PARE_SIMD_PICK(gemm_f32_packed_floats)(k, n);
}
// b[k][n] at b[k * stride_k + n * stride_n]; `packed` holds packed_b_floats(k, n), 64-byte aligned.
inline void pack_b(const float* b, std::int64_t stride_k, std::int64_t stride_n, std::int64_t k,
                   std::int64_t n, float* packed) {
  PARE_SIMD_PICK(gemm_f32_pack)(b, stride_k, stride_n, k, n, packed);
}

// The whole product over the pool; panel_begin and panel_end of `task` are ignored.
void gemm_f32(ThreadPool& pool, const GemmTask& task);

}  // namespace pare
