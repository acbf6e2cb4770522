// AVX2; binary16 by F16C, whose NaN rule the header of f16 follows.
#include <immintrin.h>

#include "engine/numeric/format_traits.h"
#include "engine/numeric/row_kernels.h"

#define PARE_TARGET __attribute__((target("avx2,fma,f16c")))

namespace pare {
namespace {
#include "engine/numeric/row_loops.inc"

PARE_TARGET void encode_f16c(const float* values, void* codes, std::int64_t n) {
  auto* out = static_cast<std::uint8_t*>(codes);
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i), half);
  }
  encode<traits::F16>(values + i, out + 2 * i, n - i);
}

PARE_TARGET void decode_f16c(const void* codes, float* values, std::int64_t n) {
  const auto* in = static_cast<const std::uint8_t*>(codes);
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 2 * i));
    _mm256_storeu_ps(values + i, _mm256_cvtph_ps(half));
  }
  decode<traits::F16>(in + 2 * i, values + i, n - i);
}

}  // namespace

const RowKernels& row_kernels_avx2() {
  static const RowKernels kernels = [] {
    RowKernels k = make_row_kernels();
    k.formats[static_cast<int>(DType::kF16)] = {encode_f16c, encode_f16c, decode_f16c};
    return k;
  }();
  return kernels;
}

}  // namespace pare
