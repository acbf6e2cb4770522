// Tiles of qgemm.h for AVX-512: int16 pairs without VNNI, bytes with it. Six rows by one to four panels.
#include <immintrin.h>

#include "engine/ops/qgemm.h"

#define PARE_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define PARE_VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))

namespace pare {
namespace {

using TileRows = void (*)(const std::uint8_t* a, std::int64_t stride, const std::uint8_t* b,
                          std::int64_t panel_bytes, std::int64_t steps, const std::int32_t* start,
                          std::int32_t* out);

// The same loop twice: a macro, since the two differ in the instructions that a function may use.
#define PARE_TILE_ROWS(NAME, TARGET, MULTIPLY_ADD)                                          \
  template <int kRows, int kPanels>                                                         \
  TARGET void NAME(const std::uint8_t* a, std::int64_t stride, const std::uint8_t* b,       \
                   std::int64_t panel_bytes, std::int64_t steps, const std::int32_t* start, \
                   std::int32_t* out) {                                                     \
    __m512i sum[kRows][kPanels];                                                            \
    _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r)                                 \
        _Pragma("GCC unroll 8") for (int p = 0; p < kPanels; ++p) sum[r][p] =               \
            _mm512_loadu_si512(start + p * kQPanel);                                        \
    for (std::int64_t s = 0; s < steps; ++s, a += 4, b += 64) {                             \
      __m512i bv[kPanels];                                                                  \
      _Pragma("GCC unroll 8") for (int p = 0; p < kPanels; ++p) bv[p] =                     \
          _mm512_loadu_si512(b + p * panel_bytes);                                          \
      _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r) {                             \
        std::int32_t step;                                                                  \
        std::memcpy(&step, a + r * stride, 4);                                              \
        const __m512i av = _mm512_set1_epi32(step);                                         \
        _Pragma("GCC unroll 8") for (int p = 0; p < kPanels; ++p) sum[r][p] =               \
            MULTIPLY_ADD(sum[r][p], av, bv[p]);                                             \
      }                                                                                     \
    }                                                                                       \
    _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r)                                 \
        _Pragma("GCC unroll 8") for (int p = 0; p < kPanels; ++p)                           \
            _mm512_storeu_si512(out + (r * kPanels + p) * kQPanel, sum[r][p]);              \
  }

#define PARE_MADD_WORDS(SUM, A, B) _mm512_add_epi32(SUM, _mm512_madd_epi16(A, B))
PARE_TILE_ROWS(rows_words, PARE_AVX512, PARE_MADD_WORDS)
PARE_TILE_ROWS(rows_bytes, PARE_VNNI, _mm512_dpbusd_epi32)

#define PARE_TILE_TABLE(NAME)                                                                               \
  {                                                                                                         \
    {NAME<1, 1>, NAME<1, 2>, NAME<1, 3>, NAME<1, 4>}, {NAME<2, 1>, NAME<2, 2>, NAME<2, 3>, NAME<2, 4>},     \
        {NAME<3, 1>, NAME<3, 2>, NAME<3, 3>, NAME<3, 4>}, {NAME<4, 1>, NAME<4, 2>, NAME<4, 3>, NAME<4, 4>}, \
        {NAME<5, 1>, NAME<5, 2>, NAME<5, 3>, NAME<5, 4>}, {                                                 \
      NAME<6, 1>, NAME<6, 2>, NAME<6, 3>, NAME<6, 4>                                                        \
    }                                                                                                       \
  }
constexpr TileRows kWordTiles[kQMaxRows][kQMaxPanels] = PARE_TILE_TABLE(rows_words);
constexpr TileRows kByteTiles[kQMaxRows][kQMaxPanels] = PARE_TILE_TABLE(rows_bytes);

void tile_words(const std::uint8_t* a, std::int64_t stride, int rows, const std::uint8_t* b,
                std::int64_t panel_bytes, int panels, std::int64_t steps, const std::int32_t* start,
                std::int32_t* out) {
  kWordTiles[rows - 1][panels - 1](a, stride, b, panel_bytes, steps, start, out);
}

void tile_bytes(const std::uint8_t* a, std::int64_t stride, int rows, const std::uint8_t* b,
                std::int64_t panel_bytes, int panels, std::int64_t steps, const std::int32_t* start,
                std::int32_t* out) {
  kByteTiles[rows - 1][panels - 1](a, stride, b, panel_bytes, steps, start, out);
}

PARE_AVX512 inline __mmask32 first32(std::int64_t n) {
  return n >= 32 ? ~__mmask32{0} : (__mmask32{1} << n) - 1;
}

// 32 codes at `x` minus the zero point; lanes from `count` on are not read.
PARE_AVX512 inline __m512i wide_codes(const std::uint8_t* x, __mmask32 mask, bool is_signed, __m512i zero) {
  const __m256i codes = _mm256_maskz_loadu_epi8(mask, x);
  return _mm512_sub_epi16(is_signed ? _mm512_cvtepi8_epi16(codes) : _mm512_cvtepu8_epi16(codes), zero);
}

PARE_AVX512 void copy_words(const std::uint8_t* codes, std::int64_t n, QType type, std::int16_t* a) {
  const __m512i zero = _mm512_set1_epi16(static_cast<std::int16_t>(type.zero));
  for (std::int64_t i = 0; i < n; i += 32) {
    const __mmask32 mask = first32(n - i);
    _mm512_mask_storeu_epi16(a + i, mask, wide_codes(codes + i, mask, type.is_signed, zero));
  }
}

PARE_AVX512 void copy_bytes(const std::uint8_t* codes, std::int64_t n, std::uint8_t flip, std::uint8_t* a) {
  const __m512i flips = _mm512_set1_epi8(static_cast<char>(flip));
  std::int64_t i = 0;
  for (; i + 64 <= n; i += 64)
    _mm512_storeu_si512(a + i, _mm512_xor_si512(_mm512_loadu_si512(codes + i), flips));
  if (i == n) return;
  const __mmask64 mask = (__mmask64{1} << (n - i)) - 1;
  _mm512_mask_storeu_epi8(a + i, mask, _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, codes + i), flips));
}

PARE_AVX512 void depthwise(const std::uint8_t* const* x, QType type, int taps, const std::int16_t* w,
                           std::int64_t channels, std::int32_t* acc) {
  const __m512i zero = _mm512_set1_epi16(static_cast<std::int16_t>(type.zero));
  const std::int64_t pair_stride = (channels + 31) / 32 * 32 * 2;
  // The unpacked halves (0-3, 8-11, 16-19, 24-27 and the others) back in channel order.
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  for (std::int64_t c = 0; c < channels; c += 32, w += 64) {
    const __mmask32 mask = first32(channels - c);
    __m512i low = _mm512_setzero_si512(), high = low;
    const std::int16_t* pair = w;
    for (int t = 0; t < taps; t += 2, pair += pair_stride) {
      const __m512i x0 = wide_codes(x[t] + c, mask, type.is_signed, zero);
      const __m512i x1 = t + 1 < taps ? wide_codes(x[t + 1] + c, mask, type.is_signed, zero) : x0;
      low = _mm512_add_epi32(low, _mm512_madd_epi16(_mm512_unpacklo_epi16(x0, x1), _mm512_loadu_si512(pair)));
      high = _mm512_add_epi32(
          high, _mm512_madd_epi16(_mm512_unpackhi_epi16(x0, x1), _mm512_loadu_si512(pair + 32)));
    }
    _mm512_storeu_si512(acc + c, _mm512_permutex2var_epi64(low, first, high));
    _mm512_storeu_si512(acc + c + 16, _mm512_permutex2var_epi64(low, second, high));
  }
}

constexpr QKernels make_kernels(bool vnni) {
  QKernels k;
  k.words = tile_words;
  if (vnni) k.bytes = tile_bytes;
  k.copy_words = copy_words;
  k.copy_bytes = copy_bytes;
  k.depthwise = depthwise;
  k.depthwise_block = 32;
  return k;
}

}  // namespace

const QKernels* q_kernels_avx512() {
  static constexpr QKernels kKernels = make_kernels(false);
  return &kKernels;
}

const QKernels* q_kernels_vnni() {
  static constexpr QKernels kKernels = make_kernels(true);
  return &kKernels;
}

}  // namespace pare
