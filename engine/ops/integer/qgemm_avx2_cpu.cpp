// Tiles of qgemm.h for AVX2: int16 pairs, pmaddwd and paddd, six rows by one panel.
#include <immintrin.h>

#include "engine/ops/integer/qgemm.h"

#define PARE_AVX2 __attribute__((target("avx2,fma")))

namespace pare {
namespace {

PARE_AVX2 inline __m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
PARE_AVX2 inline void store(void* p, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }

template <int kRows>
PARE_AVX2 void tile_rows(const std::uint8_t* a, std::int64_t stride, const std::uint8_t* b,
                         std::int64_t steps, const std::int32_t* start, std::int32_t* out,
                         std::int64_t out_stride) {
  __m256i sum[kRows][2];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    sum[r][0] = load(start);
    sum[r][1] = load(start + 8);
  }
  for (std::int64_t s = 0; s < steps; ++s, a += 4, b += 64) {
    const __m256i b0 = load(b), b1 = load(b + 32);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      std::int32_t pair;
      std::memcpy(&pair, a + r * stride, 4);
      const __m256i av = _mm256_set1_epi32(pair);
      sum[r][0] = _mm256_add_epi32(sum[r][0], _mm256_madd_epi16(av, b0));
      sum[r][1] = _mm256_add_epi32(sum[r][1], _mm256_madd_epi16(av, b1));
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    store(out + r * out_stride, sum[r][0]);
    store(out + r * out_stride + 8, sum[r][1]);
  }
}

PARE_AVX2 void tile_words(const std::uint8_t* a, std::int64_t stride, int rows, const std::uint8_t* b,
                          std::int64_t panel_bytes, int panels, std::int64_t steps, const std::int32_t* start,
                          std::int32_t* out) {
  constexpr decltype(&tile_rows<1>) kTiles[] = {tile_rows<1>, tile_rows<2>, tile_rows<3>,
                                                tile_rows<4>, tile_rows<5>, tile_rows<6>};
  for (int p = 0; p < panels; ++p)
    kTiles[rows - 1](a, stride, b + p * panel_bytes, steps, start + p * kQPanel, out + p * kQPanel,
                     panels * kQPanel);
}

template <bool kSigned>
PARE_AVX2 inline void copy_line(const std::uint8_t* codes, std::int64_t n, std::int32_t zero,
                                std::int16_t* a) {
  const __m256i zeros = _mm256_set1_epi16(static_cast<std::int16_t>(zero));
  const auto sixteen = [&](std::int64_t i) PARE_AVX2 {
    const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i));
    store(a + i, _mm256_sub_epi16(kSigned ? _mm256_cvtepi8_epi16(x) : _mm256_cvtepu8_epi16(x), zeros));
  };
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) sixteen(i);
  if (i == n) return;
  if (n >= 16) return sixteen(n - 16);  // some of them again
  for (; i < n; ++i)
    a[i] = static_cast<std::int16_t>((kSigned ? static_cast<std::int8_t>(codes[i]) : codes[i]) - zero);
}

PARE_AVX2 void copy_words(const std::uint8_t* codes, std::int64_t line_stride, std::int64_t lines,
                          std::int64_t n, QType type, std::int16_t* a) {
  for (std::int64_t l = 0; l < lines; ++l, codes += line_stride, a += n)
    type.is_signed ? copy_line<true>(codes, n, type.zero, a) : copy_line<false>(codes, n, type.zero, a);
}

PARE_AVX2 void copy_bytes(const std::uint8_t* codes, std::int64_t line_stride, std::int64_t lines,
                          std::int64_t n, std::uint8_t flip, std::uint8_t* a) {
  const __m256i mask = _mm256_set1_epi8(static_cast<char>(flip));
  for (std::int64_t l = 0; l < lines; ++l, codes += line_stride, a += n) {
    std::int64_t i = 0;
    for (; i + 32 <= n; i += 32) store(a + i, _mm256_xor_si256(load(codes + i), mask));
    for (; i < n; ++i) a[i] = codes[i] ^ flip;
  }
}

// 16 codes at `x`, int16; only the first `count` are read.
PARE_AVX2 inline __m256i wide_codes(const std::uint8_t* x, std::int64_t count, bool is_signed) {
  __m128i codes;
  if (count >= 16) {
    codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
  } else {
    std::uint64_t low = 0, high = 0;
    if (count >= 8)
      std::memcpy(&low, x, 8);
    else
      std::memcpy(&low, x, static_cast<std::size_t>(count));
    if (count > 8) std::memcpy(&high, x + 8, static_cast<std::size_t>(count - 8));
    codes = _mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low));
  }
  return is_signed ? _mm256_cvtepi8_epi16(codes) : _mm256_cvtepu8_epi16(codes);
}

template <bool kSigned>
PARE_AVX2 void depthwise_codes(const std::uint8_t* const* x, std::int64_t shift, int taps,
                               const std::int16_t* w, const std::int32_t* start, std::int64_t channels,
                               std::int32_t* acc) {
  for (std::int64_t c = 0; c < channels; c += 16) {
    const std::int64_t count = channels - c, at = shift + c;
    __m256i low = _mm256_setzero_si256(), high = low;  // channels 0-3, 8-11 and 4-7, 12-15
    for (int t = 0; t < taps; t += 2, w += 32) {
      const __m256i x0 = wide_codes(x[t] + at, count, kSigned);
      const __m256i x1 = t + 1 < taps ? wide_codes(x[t + 1] + at, count, kSigned) : x0;
      low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(x0, x1), load(w)));
      high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_unpackhi_epi16(x0, x1), load(w + 16)));
    }
    store(acc + c, _mm256_add_epi32(load(start + c), _mm256_permute2x128_si256(low, high, 0x20)));
    store(acc + c + 8, _mm256_add_epi32(load(start + c + 8), _mm256_permute2x128_si256(low, high, 0x31)));
  }
}

PARE_AVX2 void depthwise(const std::uint8_t* const* x, std::int64_t shift, bool is_signed, int taps,
                         const void* w, const std::int32_t* start, std::int64_t channels, std::int32_t* acc) {
  (is_signed ? depthwise_codes<true> : depthwise_codes<false>)(x, shift, taps,
                                                               static_cast<const std::int16_t*>(w), start,
                                                               channels, acc);
}

constexpr QKernels make_kernels() {
  QKernels k;
  k.words = tile_words;
  k.copy_words = copy_words;
  k.copy_bytes = copy_bytes;
  k.depthwise_words = depthwise;
  return k;
}

}  // namespace

const QKernels* q_kernels_avx2() {
  static constexpr QKernels kKernels = make_kernels();
  return &kKernels;
}

}  // namespace pare
