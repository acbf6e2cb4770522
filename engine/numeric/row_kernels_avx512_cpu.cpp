// AVX-512 F, BW, DQ, VL.
#include <immintrin.h>

#include "engine/numeric/format_traits.h"
#include "engine/numeric/row_kernels.h"

#define PARE_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")))

namespace pare {
namespace {
#include "engine/numeric/row_loops.inc"

PARE_TARGET void encode_f16_512(const float* values, void* codes, std::int64_t n) {
  auto* out = static_cast<std::uint8_t*>(codes);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i half = _mm512_cvtps_ph(_mm512_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 2 * i), half);
  }
  encode<traits::F16>(values + i, out + 2 * i, n - i);
}

PARE_TARGET void decode_f16_512(const void* codes, float* values, std::int64_t n) {
  const auto* in = static_cast<const std::uint8_t*>(codes);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + 2 * i));
    _mm512_storeu_ps(values + i, _mm512_cvtph_ps(half));
  }
  decode<traits::F16>(in + 2 * i, values + i, n - i);
}

}  // namespace

const RowKernels& row_kernels_avx512() {
  static const RowKernels kernels = [] {
    RowKernels k = make_row_kernels();
    k.formats[static_cast<int>(DType::kF16)] = {encode_f16_512, encode_f16_512, decode_f16_512};
    return k;
  }();
  return kernels;
}

}  // namespace pare
