// One vector type for code that is compiled once for every instruction class.
//
// The files named *_simd.cpp are compiled three times (cmake/simd.cmake): for plain C++, AVX2 and
// AVX-512. Each time F32 is that class's vector of floats (1, 8 or 16 lanes) and everything lies in its
// own namespace PARE_SIMD, so that the linker cannot mix them up. Callers declare a function for all
// classes with PARE_SIMD_DECLARE and choose at run time with PARE_SIMD_PICK:
//
//   PARE_SIMD_DECLARE(void relu(const float* x, float* y, std::int64_t n))
//   PARE_SIMD_PICK(relu)(x, y, n);
//
// Every operation here rounds as IEEE says, lane by lane, so code that does not let the number of lanes
// into an order of summation has the same bits in every class. Such files keep to plain pointers and small
// inline code: no containers, no std::function (their code would be compiled for AVX-512 too, and the
// linker keeps one copy for the whole program).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "engine/base/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#ifndef PARE_SIMD_LEVEL  // 0 plain C++, 1 AVX2, 2 AVX-512; set for *_simd.cpp by CMake
#define PARE_SIMD_LEVEL 0
#endif

#if PARE_SIMD_LEVEL == 2
#define PARE_SIMD simd_avx512
#elif PARE_SIMD_LEVEL == 1
#define PARE_SIMD simd_avx2
#else
#define PARE_SIMD simd_scalar
#endif

#define PARE_SIMD_DECLARE(declaration)            \
  namespace simd_scalar {                         \
  declaration;                                    \
  } /* the same function for the other classes */ \
  namespace simd_avx2 {                           \
  declaration;                                    \
  }                                               \
  namespace simd_avx512 {                         \
  declaration;                                    \
  }

#define PARE_SIMD_PICK(function)                                         \
  (::pare::isa() >= ::pare::Isa::kAvx512 ? ::pare::simd_avx512::function \
   : ::pare::isa() >= ::pare::Isa::kAvx2 ? ::pare::simd_avx2::function   \
                                         : ::pare::simd_scalar::function)

// In front of a loop with a constant count over an array of vectors: unrolled, so that they stay in
// registers.
#if defined(__clang__)
#define PARE_UNROLL _Pragma("unroll")
#else
#define PARE_UNROLL _Pragma("GCC unroll 16")
#endif

#define PARE_INLINE inline __attribute__((always_inline))

// min(a, b) is a < b ? a : b, and max the same with >: when either is NaN, or both are zero, the result is
// b. So max(lo, x) and min(hi, x) keep a NaN in x.
namespace pare::PARE_SIMD {

#if PARE_SIMD_LEVEL == 2

struct F32 {
  static constexpr int kLanes = 16;
  using Mask = __mmask16;
  __m512 v;

  static PARE_INLINE F32 set(float x) { return {_mm512_set1_ps(x)}; }
  static PARE_INLINE F32 zero() { return {_mm512_setzero_ps()}; }
  static PARE_INLINE F32 load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static PARE_INLINE Mask first(int n) { return static_cast<Mask>((1u << n) - 1u); }
  // The first n lanes (0 <= n <= kLanes); the others are 0 and their memory is not touched.
  static PARE_INLINE F32 load(const float* p, int n) { return {_mm512_maskz_loadu_ps(first(n), p)}; }
  PARE_INLINE void store(float* p) const { _mm512_storeu_ps(p, v); }
  PARE_INLINE void store(float* p, int n) const { _mm512_mask_storeu_ps(p, first(n), v); }
};

PARE_INLINE F32 operator+(F32 a, F32 b) { return {_mm512_add_ps(a.v, b.v)}; }
PARE_INLINE F32 operator-(F32 a, F32 b) { return {_mm512_sub_ps(a.v, b.v)}; }
PARE_INLINE F32 operator*(F32 a, F32 b) { return {_mm512_mul_ps(a.v, b.v)}; }
PARE_INLINE F32 operator/(F32 a, F32 b) { return {_mm512_div_ps(a.v, b.v)}; }
PARE_INLINE F32 fma(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }    // a * b + c
PARE_INLINE F32 fnma(F32 a, F32 b, F32 c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }  // c - a * b
PARE_INLINE F32 min(F32 a, F32 b) { return {_mm512_min_ps(a.v, b.v)}; }
PARE_INLINE F32 max(F32 a, F32 b) { return {_mm512_max_ps(a.v, b.v)}; }
PARE_INLINE F32 sqrt(F32 a) { return {_mm512_sqrt_ps(a.v)}; }
PARE_INLINE F32 abs(F32 a) { return {_mm512_abs_ps(a.v)}; }
PARE_INLINE F32 copysign(F32 magnitude, F32 sign) {
  const __m512 bit = _mm512_set1_ps(-0.0f);
  return {_mm512_or_ps(_mm512_andnot_ps(bit, magnitude.v), _mm512_and_ps(bit, sign.v))};
}
PARE_INLINE F32::Mask less(F32 a, F32 b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ); }
PARE_INLINE F32::Mask is_nan(F32 a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q); }
PARE_INLINE F32 select(F32::Mask m, F32 yes, F32 no) { return {_mm512_mask_blend_ps(m, no.v, yes.v)}; }
// p * 2^n for an integral n in [-160, 160] and p in [0.5, 2]: one rounding, denormals included.
PARE_INLINE F32 scale_by_power(F32 p, F32 n) { return {_mm512_scalef_ps(p.v, n.v)}; }
PARE_INLINE float sum(F32 a) {  // in a fixed order, which depends on the class
  return _mm512_reduce_add_ps(a.v);
}

#elif PARE_SIMD_LEVEL == 1

struct F32 {
  static constexpr int kLanes = 8;
  using Mask = __m256;
  __m256 v;

  static PARE_INLINE F32 set(float x) { return {_mm256_set1_ps(x)}; }
  static PARE_INLINE F32 zero() { return {_mm256_setzero_ps()}; }
  static PARE_INLINE F32 load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static PARE_INLINE __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static PARE_INLINE F32 load(const float* p, int n) { return {_mm256_maskload_ps(p, first(n))}; }
  PARE_INLINE void store(float* p) const { _mm256_storeu_ps(p, v); }
  PARE_INLINE void store(float* p, int n) const {
    if (n == kLanes) return store(p);
    alignas(32) float lanes[kLanes];  // a masked store is many times slower on AMD's AVX2 processors
    _mm256_store_ps(lanes, v);
    for (int i = 0; i < n; ++i) p[i] = lanes[i];
  }
};

PARE_INLINE F32 operator+(F32 a, F32 b) { return {_mm256_add_ps(a.v, b.v)}; }
PARE_INLINE F32 operator-(F32 a, F32 b) { return {_mm256_sub_ps(a.v, b.v)}; }
PARE_INLINE F32 operator*(F32 a, F32 b) { return {_mm256_mul_ps(a.v, b.v)}; }
PARE_INLINE F32 operator/(F32 a, F32 b) { return {_mm256_div_ps(a.v, b.v)}; }
PARE_INLINE F32 fma(F32 a, F32 b, F32 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
PARE_INLINE F32 fnma(F32 a, F32 b, F32 c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }
PARE_INLINE F32 min(F32 a, F32 b) { return {_mm256_min_ps(a.v, b.v)}; }
PARE_INLINE F32 max(F32 a, F32 b) { return {_mm256_max_ps(a.v, b.v)}; }
PARE_INLINE F32 sqrt(F32 a) { return {_mm256_sqrt_ps(a.v)}; }
PARE_INLINE F32 abs(F32 a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
PARE_INLINE F32 copysign(F32 magnitude, F32 sign) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(bit, magnitude.v), _mm256_and_ps(bit, sign.v))};
}
PARE_INLINE F32::Mask less(F32 a, F32 b) { return _mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ); }
PARE_INLINE F32::Mask is_nan(F32 a) { return _mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q); }
PARE_INLINE F32 select(F32::Mask m, F32 yes, F32 no) { return {_mm256_blendv_ps(no.v, yes.v, m)}; }
PARE_INLINE F32 scale_by_power(F32 p, F32 n) {
  // Two factors, since 2^n itself may be no float. The first product is exact.
  const __m256i whole = _mm256_cvtps_epi32(n.v), half = _mm256_srai_epi32(whole, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256i a = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i b = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
  return {_mm256_mul_ps(_mm256_mul_ps(p.v, _mm256_castsi256_ps(a)), _mm256_castsi256_ps(b))};
}
PARE_INLINE float sum(F32 a) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

#else

struct F32 {
  static constexpr int kLanes = 1;
  using Mask = bool;
  float v;

  static PARE_INLINE F32 set(float x) { return {x}; }
  static PARE_INLINE F32 zero() { return {0.0f}; }
  static PARE_INLINE F32 load(const float* p) { return {*p}; }
  static PARE_INLINE F32 load(const float* p, int n) { return {n > 0 ? *p : 0.0f}; }
  PARE_INLINE void store(float* p) const { *p = v; }
  PARE_INLINE void store(float* p, int n) const {
    if (n > 0) *p = v;
  }
};

PARE_INLINE F32 operator+(F32 a, F32 b) { return {a.v + b.v}; }
PARE_INLINE F32 operator-(F32 a, F32 b) { return {a.v - b.v}; }
PARE_INLINE F32 operator*(F32 a, F32 b) { return {a.v * b.v}; }
PARE_INLINE F32 operator/(F32 a, F32 b) { return {a.v / b.v}; }
PARE_INLINE F32 fma(F32 a, F32 b, F32 c) { return {std::fma(a.v, b.v, c.v)}; }
PARE_INLINE F32 fnma(F32 a, F32 b, F32 c) { return {std::fma(-a.v, b.v, c.v)}; }
PARE_INLINE F32 min(F32 a, F32 b) { return {a.v < b.v ? a.v : b.v}; }
PARE_INLINE F32 max(F32 a, F32 b) { return {a.v > b.v ? a.v : b.v}; }
PARE_INLINE F32 sqrt(F32 a) { return {std::sqrt(a.v)}; }
PARE_INLINE F32 abs(F32 a) { return {std::fabs(a.v)}; }
PARE_INLINE F32 copysign(F32 magnitude, F32 sign) { return {std::copysign(magnitude.v, sign.v)}; }
PARE_INLINE F32::Mask less(F32 a, F32 b) { return a.v < b.v; }
PARE_INLINE F32::Mask is_nan(F32 a) { return a.v != a.v; }
PARE_INLINE F32 select(F32::Mask m, F32 yes, F32 no) { return m ? yes : no; }
PARE_INLINE F32 scale_by_power(F32 p, F32 n) {
  if (n.v != n.v) return n;
  const int whole = static_cast<int>(n.v), half = whole >> 1;
  const float a = std::bit_cast<float>((half + 127) << 23);
  return {p.v * a * std::bit_cast<float>((whole - half + 127) << 23)};
}
PARE_INLINE float sum(F32 a) { return a.v; }

#endif

// y[i] = op(x[i]) for i < n, op from F32 to F32. x == y is allowed.
template <typename Op>
PARE_INLINE void transform(const float* x, float* y, std::int64_t n, Op op) {
  std::int64_t i = 0;
  for (; i + F32::kLanes <= n; i += F32::kLanes) op(F32::load(x + i)).store(y + i);
  if (i < n) op(F32::load(x + i, static_cast<int>(n - i))).store(y + i, static_cast<int>(n - i));
}

// y[i] = op(a[i], b[i]).
template <typename Op>
PARE_INLINE void transform2(const float* a, const float* b, float* y, std::int64_t n, Op op) {
  std::int64_t i = 0;
  for (; i + F32::kLanes <= n; i += F32::kLanes) op(F32::load(a + i), F32::load(b + i)).store(y + i);
  if (i < n) {
    const int rest = static_cast<int>(n - i);
    op(F32::load(a + i, rest), F32::load(b + i, rest)).store(y + i, rest);
  }
}

}  // namespace pare::PARE_SIMD
