// An 8x8 block of 4 byte elements turned in registers. Included by *_simd.cpp files only.
#pragma once

#include "engine/ops/simd.h"

#if PARE_SIMD_LEVEL >= 1
namespace pare::PARE_SIMD {

// to[i * to_stride + j] = from[j * from_stride + i] for i, j < 8.
PARE_INLINE void transpose8(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride) {
  __m256 r[8], s[8];
  PARE_UNROLL for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(from + i * from_stride);
  PARE_UNROLL for (int i = 0; i < 8; i += 2) {
    s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  PARE_UNROLL for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(s[i], s[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(s[i], s[i + 2], 0xEE);
    r[i + 2] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xEE);
  }
  PARE_UNROLL for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * to_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * to_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

}  // namespace pare::PARE_SIMD
#endif
