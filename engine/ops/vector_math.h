// exp, tanh, erf, sigmoid and the activations made of them, on F32 vectors (simd.h). Included by
// *_simd.cpp files only.
//
// The same polynomials and the same fused operations in every instruction class, so the bits agree.
// Largest errors in units in the last place, over all floats (tests/unit/ops/vector_math_test.cpp
// walks them in steps and holds the bounds):
//
//   exp      0.88    underflows gradually; exp(-inf) = 0, overflow gives inf
//   tanh     1.9     -0 stays -0
//   erf      1.01
//   sigmoid  2.5     underflows gradually for large negative x
//
// NaN gives NaN everywhere. exp, tanh and erf: polynomials by N. Juffa (answers on Stack Overflow
// and the CUDA forums, BSD-2), their bounds measured again by our test.
#pragma once

#include "engine/ops/simd.h"

namespace pare::PARE_SIMD {

PARE_INLINE F32 exp(F32 x) {
  // Beyond these the result is 0 or inf anyway, and n stays small.
  x = min(F32::set(89.0f), max(F32::set(-104.0f), x));
  const F32 magic = F32::set(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const F32 n = fma(F32::set(1.442695f), x, magic) - magic;
  F32 f = fma(n, F32::set(-6.93145752e-1f), x);  // ln 2 in two parts; the first product is exact
  f = fma(n, F32::set(-1.42860677e-6f), f);
  F32 r = F32::set(1.37805939e-3f);
  r = fma(r, f, F32::set(8.37312452e-3f));
  r = fma(r, f, F32::set(4.16695364e-2f));
  r = fma(r, f, F32::set(1.66664720e-1f));
  r = fma(r, f, F32::set(4.99999851e-1f));
  r = fma(r, f, F32::set(1.0f));
  r = fma(r, f, F32::set(1.0f));
  return scale_by_power(r, n);
}

PARE_INLINE F32 tanh(F32 x) {
  const F32 t = abs(x), s = x * x, one = F32::set(1.0f);
  const F32 large = one - F32::set(2.0f) / (exp(t + t) + one);
  F32 r = F32::set(1.57394409e-2f);
  r = fma(r, s, F32::set(-5.23025580e-2f));
  r = fma(r, s, F32::set(1.33152470e-1f));
  r = fma(r, s, F32::set(-3.33327681e-1f));
  r = r * s;
  return copysign(select(less(t, F32::set(0.55f)), fma(r, t, t), large), x);
}

PARE_INLINE F32 erf(F32 x) {
  const F32 t = abs(x), s = x * x;
  F32 r = fma(F32::set(-1.72853470e-5f), t, F32::set(3.83197126e-4f));
  const F32 u = fma(F32::set(-3.88396438e-3f), t, F32::set(2.42546219e-2f));
  r = fma(r, s, u);
  r = fma(r, t, F32::set(-1.06777877e-1f));
  r = fma(r, t, F32::set(-6.34846687e-1f));
  r = fma(r, t, F32::set(-1.28717512e-1f));
  r = fma(r, t, F32::zero() - t);
  // The polynomial turns upward far out, where erf is 1 to the last bit.
  r = select(less(F32::set(4.0f), t), F32::set(-104.0f), r);
  const F32 large = copysign(F32::set(1.0f) - exp(r), x);
  F32 q = F32::set(-5.96761703e-4f);
  q = fma(q, s, F32::set(4.99119423e-3f));
  q = fma(q, s, F32::set(-2.67681349e-2f));
  q = fma(q, s, F32::set(1.12819925e-1f));
  q = fma(q, s, F32::set(-3.76125336e-1f));
  q = fma(q, s, F32::set(1.28379166e-1f));
  return select(less(t, F32::set(0.927734375f)), fma(q, x, x), large);
}

PARE_INLINE F32 sigmoid(F32 x) {
  const F32 one = F32::set(1.0f), e = exp(F32::zero() - abs(x));
  return select(less(x, F32::zero()), e, one) / (one + e);
}

// max(0, min(1, alpha * x + beta))
PARE_INLINE F32 hard_sigmoid(F32 x, F32 alpha, F32 beta) {
  return max(F32::zero(), min(F32::set(1.0f), fma(alpha, x, beta)));
}
PARE_INLINE F32 hard_swish(F32 x) {  // x * hard_sigmoid(x, 1/6, 1/2)
  return x * hard_sigmoid(x, F32::set(1.0f / 6.0f), F32::set(0.5f));
}
PARE_INLINE F32 silu(F32 x) { return x * sigmoid(x); }
// x/2 * (1 + erf(z)), z = x / sqrt 2; within 1.3 * 2^-23 * |x|, not relative: the sum cancels for negative x.
// One polynomial for erf(z) / z (minimax in the absolute error of erf, 5.4e-8) instead of erf()'s two.
PARE_INLINE F32 gelu(F32 x) {
  const F32 z = x * F32::set(0.70710678118f), half = F32::set(0.5f) * x;
  const F32 u = fma(z * z, F32::set(2.0f / (3.8f * 3.8f)), F32::set(-1.0f));  // [-1, 1] for |z| <= 3.8
  F32 r = F32::set(0.00105236366f);
  r = fma(r, u, F32::set(-0.00272207777f));
  r = fma(r, u, F32::set(0.0022796744f));
  r = fma(r, u, F32::set(-0.00322552072f));
  r = fma(r, u, F32::set(0.0100470204f));
  r = fma(r, u, F32::set(-0.0184122734f));
  r = fma(r, u, F32::set(0.0266406313f));
  r = fma(r, u, F32::set(-0.0388996862f));
  r = fma(r, u, F32::set(0.0550705194f));
  r = fma(r, u, F32::set(-0.072525166f));
  r = fma(r, u, F32::set(0.090831019f));
  r = fma(r, u, F32::set(-0.11118459f));
  r = fma(r, u, F32::set(0.137739584f));
  r = fma(r, u, F32::set(-0.185641229f));
  r = fma(r, u, F32::set(0.372107625f));
  const F32 e = select(less(abs(z), F32::set(3.8f)), z * r, copysign(F32::set(1.0f), z));
  return fma(half, e, half);
}
// x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))
PARE_INLINE F32 gelu_tanh(F32 x) {
  const F32 inner = x * fma(F32::set(0.044715f * 0.79788456f), x * x, F32::set(0.79788456f));
  return F32::set(0.5f) * x * (F32::set(1.0f) + tanh(inner));
}
PARE_INLINE F32 relu(F32 x) { return max(F32::zero(), x); }
PARE_INLINE F32 clip(F32 x, F32 lo, F32 hi) { return min(hi, max(lo, x)); }

}  // namespace pare::PARE_SIMD
