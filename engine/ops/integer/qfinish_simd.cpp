#include "engine/ops/integer/qfinish.h"

#include <cstring>
#include <limits>

#include "engine/ops/activation_simd.h"
#include "engine/ops/vector_math.h"

namespace pare::PARE_SIMD {
namespace {

// Integers beside F32: conversions that simd.h has no other user for.
#if PARE_SIMD_LEVEL == 2

PARE_INLINE F32 from_ints(const std::int32_t* p) { return {_mm512_cvtepi32_ps(_mm512_loadu_si512(p))}; }
PARE_INLINE F32 from_codes(const std::uint8_t* p, int n, bool is_signed, std::int32_t zero) {
  const __m128i codes = _mm_maskz_loadu_epi8(F32::first(n), p);
  const __m512i wide = is_signed ? _mm512_cvtepi8_epi32(codes) : _mm512_cvtepu8_epi32(codes);
  return {_mm512_cvtepi32_ps(_mm512_sub_epi32(wide, _mm512_set1_epi32(zero)))};
}
PARE_INLINE F32 or_zero(F32 a) {  // NaN becomes 0
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a.v, a.v, _CMP_ORD_Q), a.v)};
}
PARE_INLINE void store_codes(F32 rounded, std::int32_t zero, std::uint8_t* p, int n) {
  const __m512i q = _mm512_add_epi32(_mm512_cvtps_epi32(rounded.v), _mm512_set1_epi32(zero));
  const __m128i codes = _mm512_cvtepi32_epi8(q);
  if (n == F32::kLanes)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), codes);
  else
    _mm_mask_storeu_epi8(p, F32::first(n), codes);
}
PARE_INLINE F32 round_even(F32 a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT)}; }
PARE_INLINE bool any(F32::Mask m) { return m != 0; }

#elif PARE_SIMD_LEVEL == 1

PARE_INLINE F32 from_ints(const std::int32_t* p) {
  return {_mm256_cvtepi32_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
PARE_INLINE F32 from_codes(const std::uint8_t* p, int n, bool is_signed, std::int32_t zero) {
  std::uint64_t eight = 0;
  std::memcpy(&eight, p, static_cast<std::size_t>(n));
  const __m128i codes = _mm_cvtsi64_si128(static_cast<long long>(eight));
  const __m256i wide = is_signed ? _mm256_cvtepi8_epi32(codes) : _mm256_cvtepu8_epi32(codes);
  return {_mm256_cvtepi32_ps(_mm256_sub_epi32(wide, _mm256_set1_epi32(zero)))};
}
PARE_INLINE F32 or_zero(F32 a) { return {_mm256_and_ps(a.v, _mm256_cmp_ps(a.v, a.v, _CMP_ORD_Q))}; }
PARE_INLINE void store_codes(F32 rounded, std::int32_t zero, std::uint8_t* p, int n) {
  const __m256i q = _mm256_add_epi32(_mm256_cvtps_epi32(rounded.v), _mm256_set1_epi32(zero));
  const __m256i low = _mm256_and_si256(q, _mm256_set1_epi32(0xFF));
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  const auto eight = static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_packus_epi16(words, words)));
  std::memcpy(p, &eight, static_cast<std::size_t>(n));
}
PARE_INLINE F32 round_even(F32 a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
PARE_INLINE bool any(F32::Mask m) { return _mm256_movemask_ps(m) != 0; }

#else

PARE_INLINE F32 from_ints(const std::int32_t* p) { return {static_cast<float>(*p)}; }
PARE_INLINE F32 from_codes(const std::uint8_t* p, int, bool is_signed, std::int32_t zero) {
  return {static_cast<float>((is_signed ? static_cast<std::int8_t>(*p) : *p) - zero)};
}
PARE_INLINE F32 or_zero(F32 a) { return {a.v == a.v ? a.v : 0.0f}; }
PARE_INLINE void store_codes(F32 rounded, std::int32_t zero, std::uint8_t* p, int) {
  // Adding 1.5 * 2^23 rounds to even; the values are within +-512.
  const float shifted = rounded.v + 12582912.0f;
  *p = static_cast<std::uint8_t>(std::bit_cast<std::int32_t>(shifted) - 0x4B400000 + zero);
}

PARE_INLINE F32 round_even(F32 a) { return {(a.v + 12582912.0f) - 12582912.0f}; }
PARE_INLINE bool any(F32::Mask m) { return m; }

#endif

struct Range {
  F32 scale, low, high;
  std::int32_t zero;
  F32 reciprocal;  // 1 / scale
  bool divide;     // always: 1 / scale is no good approximation
};

// v / scale, clamped, or a number that rounds to the same integer.
//
// t = v * (1 / scale) is off by at most three roundings, 3 * 2^-24 * 512 < 2^-13 for what is not clamped
// away. Unless t lies within 2^-13 of the middle between two integers, which happens once in 4,096 elements,
// it thus rounds to the integer that v / scale rounds to. A division costs as much as all the rest here.
PARE_INLINE F32 quotient(F32 v, const Range& range) {
  const auto clamp = [&](F32 q) { return min(range.high, max(range.low, or_zero(q))); };
  if (range.divide) return clamp(v / range.scale);
  const F32 t = clamp(v * range.reciprocal);
  if (any(less(F32::set(0.5f - 0x1p-13f), abs(t - round_even(t))))) return clamp(v / range.scale);
  return t;
}

template <typename Activation>
PARE_INLINE void finish_vector(const QFinish& f, const Range& range, const std::int32_t* acc,
                               std::int64_t row, std::int64_t c, int n, Activation activation) {
  const bool whole = n == F32::kLanes;
  F32 v = from_ints(acc) * F32::load(f.scale + c);
  if (f.bias != nullptr) v = v + F32::load(f.bias + c);
  if (f.residual != nullptr) {
    const std::int64_t at = row * f.residual_stride + c;
    if (f.residual_type == DType::kF32) {
      const float* p = static_cast<const float*>(f.residual) + at;
      v = v + (whole ? F32::load(p) : F32::load(p, n));
    } else {
      const auto* p = static_cast<const std::uint8_t*>(f.residual) + at;
      v = v + from_codes(p, n, f.residual_type == DType::kI8, f.residual_zero) * F32::set(f.residual_scale);
    }
  }
  v = activation(v);
  const std::int64_t at = row * f.y_stride + c;
  if (f.y_type == DType::kF32) {
    float* p = static_cast<float*>(f.y) + at;
    whole ? v.store(p) : v.store(p, n);
    return;
  }
  store_codes(quotient(v, range), range.zero, static_cast<std::uint8_t*>(f.y) + at, n);
}

template <typename Activation>
PARE_INLINE void finish(const QFinish& f, const std::int32_t* acc, std::int64_t acc_stride, std::int64_t row,
                        int rows, std::int64_t column, std::int64_t columns, Activation activation) {
  const int low = f.y_type == DType::kI8 ? -128 : 0;
  const float size = std::fabs(f.y_scale);
  const Range range = {F32::set(f.y_scale),
                       F32::set(static_cast<float>(low - f.y_zero)),
                       F32::set(static_cast<float>(low + 255 - f.y_zero)),
                       f.y_zero,
                       F32::set(1.0f / f.y_scale),
                       !(size > 0x1p-100f && size < 0x1p100f)};
  for (int r = 0; r < rows; ++r) {
    const std::int32_t* from = acc + r * acc_stride;
    std::int64_t c = 0;
    for (; c + F32::kLanes <= columns; c += F32::kLanes)
      finish_vector(f, range, from + c, row + r, column + c, F32::kLanes, activation);
    if (c < columns)
      finish_vector(f, range, from + c, row + r, column + c, static_cast<int>(columns - c), activation);
  }
}

}  // namespace

void q_finish(const QFinish& f, const std::int32_t* acc, std::int64_t acc_stride, std::int64_t row, int rows,
              std::int64_t column, std::int64_t columns) {
  const Activation& act = f.activation;
  const auto run = [&](auto activation) {
    finish(f, acc, acc_stride, row, rows, column, columns, activation);
  };
  if (act.kind != Activation::Kind::kClip) return with_activation(act, run);
  const F32 lo = F32::set(act.lo), hi = F32::set(act.hi);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  if (act.lo == -kInf && act.hi == kInf) return run([](F32 v) { return v; });
  if (act.hi == kInf) return run([=](F32 v) { return max(lo, v); });
  return run([=](F32 v) { return clip(v, lo, hi); });
}

}  // namespace pare::PARE_SIMD
