// Tiles of qgemm.h for AVX-512: int16 pairs without VNNI, bytes with it. Six rows by one to four panels.
#include <immintrin.h>

#include "engine/ops/integer/qgemm.h"

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

template <bool kSigned>
PARE_AVX512 inline __m512i wide_codes32(__m256i codes, __m512i zero) {
  return _mm512_sub_epi16(kSigned ? _mm512_cvtepi8_epi16(codes) : _mm512_cvtepu8_epi16(codes), zero);
}

template <bool kSigned>
PARE_AVX512 void copy_codes(const std::uint8_t* codes, std::int64_t line_stride, std::int64_t lines,
                            std::int64_t n, std::int32_t zero, std::int16_t* a) {
  const __m512i zeros = _mm512_set1_epi16(static_cast<std::int16_t>(zero));
  const std::int64_t whole = n / 32 * 32;
  const __mmask32 rest = (__mmask32{1} << (n - whole)) - 1;
  for (std::int64_t l = 0; l < lines; ++l, codes += line_stride, a += n) {
    for (std::int64_t i = 0; i < whole; i += 32) {
      const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i));
      _mm512_storeu_si512(a + i, wide_codes32<kSigned>(x, zeros));
    }
    if (rest == 0) continue;
    const __m256i x = _mm256_maskz_loadu_epi8(rest, codes + whole);
    _mm512_mask_storeu_epi16(a + whole, rest, wide_codes32<kSigned>(x, zeros));
  }
}

PARE_AVX512 void copy_words(const std::uint8_t* codes, std::int64_t line_stride, std::int64_t lines,
                            std::int64_t n, QType type, std::int16_t* a) {
  (type.is_signed ? copy_codes<true> : copy_codes<false>)(codes, line_stride, lines, n, type.zero, a);
}

PARE_AVX512 void copy_bytes(const std::uint8_t* codes, std::int64_t line_stride, std::int64_t lines,
                            std::int64_t n, std::uint8_t flip, std::uint8_t* a) {
  const __m512i flips = _mm512_set1_epi8(static_cast<char>(flip));
  const std::int64_t whole = n / 64 * 64;
  const __mmask64 rest = (__mmask64{1} << (n - whole)) - 1;
  for (std::int64_t l = 0; l < lines; ++l, codes += line_stride, a += n) {
    for (std::int64_t i = 0; i < whole; i += 64)
      _mm512_storeu_si512(a + i, _mm512_xor_si512(_mm512_loadu_si512(codes + i), flips));
    if (rest == 0) continue;
    const __m512i x = _mm512_maskz_loadu_epi8(rest, codes + whole);
    _mm512_mask_storeu_epi8(a + whole, rest, _mm512_xor_si512(x, flips));
  }
}

PARE_AVX512 inline __mmask16 first16(std::int64_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xFFFF : (1 << n) - 1);
}

template <bool kSigned>
PARE_AVX512 inline __m256i wide_codes16(const std::uint8_t* p, __mmask16 mask) {
  const __m128i codes = _mm_maskz_loadu_epi8(mask, p);
  return kSigned ? _mm256_cvtepi8_epi16(codes) : _mm256_cvtepu8_epi16(codes);
}

// 16 channels at a time in 256 bits: maps of 24, 40 or 72 channels would leave most of 512 bits empty.
template <bool kSigned>
PARE_AVX512 void depthwise_codes(const std::uint8_t* const* x, std::int64_t shift, int taps,
                                 const std::int16_t* w, const std::int32_t* start, std::int64_t channels,
                                 std::int32_t* acc) {
  for (std::int64_t c = 0; c < channels; c += 16) {
    const __mmask16 mask = first16(channels - c);
    const std::int64_t at = shift + c;
    __m512i sum = _mm512_setzero_si512();  // channels 0-3, 8-11, 4-7, 12-15
    for (int t = 0; t < taps; t += 2, w += 32) {
      const __m256i x0 = wide_codes16<kSigned>(x[t] + at, mask);
      const __m256i x1 = t + 1 < taps ? wide_codes16<kSigned>(x[t + 1] + at, mask) : x0;
      const __m512i pairs = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_unpacklo_epi16(x0, x1)),
                                               _mm256_unpackhi_epi16(x0, x1), 1);
      sum = _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_loadu_si512(w)));
    }
    const __m512i in_order = _mm512_shuffle_i64x2(sum, sum, 0xD8);  // 128-bit quarters 0, 2, 1, 3
    _mm512_storeu_si512(acc + c, _mm512_add_epi32(in_order, _mm512_loadu_si512(start + c)));
  }
}

PARE_AVX512 void depthwise_words(const std::uint8_t* const* x, std::int64_t shift, bool is_signed, int taps,
                                 const void* w, const std::int32_t* start, std::int64_t channels,
                                 std::int32_t* acc) {
  (is_signed ? depthwise_codes<true> : depthwise_codes<false>)(x, shift, taps,
                                                               static_cast<const std::int16_t*>(w), start,
                                                               channels, acc);
}

// Four taps of 16 channels side by side, turned so that each channel's four bytes are neighbours, times their
// weights.
PARE_VNNI inline __m512i add_four_taps(__m512i sum, __m512i taps, __m512i flip, const std::int8_t* weights) {
  const __m512i dwords = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i bytes =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  const __m512i turned = _mm512_shuffle_epi8(_mm512_permutexvar_epi32(dwords, taps), bytes);
  return _mm512_dpbusd_epi32(sum, _mm512_xor_si512(turned, flip), _mm512_loadu_si512(weights));
}

// All 16 channels from `p`, or the first ones of the last block.
template <bool kAll>
PARE_VNNI inline __m128i codes16(const std::uint8_t* p, __mmask16 mask) {
  if constexpr (kAll) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm_maskz_loadu_epi8(mask, p);
}

template <bool kAll>
PARE_VNNI inline __m512i depthwise_block(const std::uint8_t* const* x, std::int64_t at, __m512i flip,
                                         int taps, const std::int8_t* weights, __m512i sum, __mmask16 mask) {
  int t = 0;
  for (; t + 4 <= taps; t += 4, weights += 64) {
    __m512i four = _mm512_castsi128_si512(codes16<kAll>(x[t] + at, mask));
    four = _mm512_inserti32x4(four, codes16<kAll>(x[t + 1] + at, mask), 1);
    four = _mm512_inserti32x4(four, codes16<kAll>(x[t + 2] + at, mask), 2);
    four = _mm512_inserti32x4(four, codes16<kAll>(x[t + 3] + at, mask), 3);
    sum = add_four_taps(sum, four, flip, weights);
  }
  if (t == taps) return sum;
  __m512i rest = _mm512_castsi128_si512(codes16<kAll>(x[t] + at, mask));  // missing ones meet weights of 0
  if (t + 1 < taps) rest = _mm512_inserti32x4(rest, codes16<kAll>(x[t + 1] + at, mask), 1);
  if (t + 2 < taps) rest = _mm512_inserti32x4(rest, codes16<kAll>(x[t + 2] + at, mask), 2);
  return add_four_taps(sum, rest, flip, weights);
}

PARE_VNNI void depthwise_bytes(const std::uint8_t* const* x, std::int64_t shift, bool is_signed, int taps,
                               const void* w, const std::int32_t* start, std::int64_t channels,
                               std::int32_t* acc) {
  const __m512i flip = _mm512_set1_epi8(is_signed ? static_cast<char>(0x80) : 0);
  const auto* weights = static_cast<const std::int8_t*>(w);
  const int step = (taps + 3) / 4 * 64;
  std::int64_t c = 0;
  for (; c + 16 <= channels; c += 16, weights += step) {
    const __m512i sum = _mm512_loadu_si512(start + c);
    _mm512_storeu_si512(acc + c, depthwise_block<true>(x, shift + c, flip, taps, weights, sum, 0xFFFF));
  }
  if (c == channels) return;
  const __m512i sum = _mm512_loadu_si512(start + c);
  _mm512_storeu_si512(acc + c,
                      depthwise_block<false>(x, shift + c, flip, taps, weights, sum, first16(channels - c)));
}

constexpr QKernels make_kernels(bool vnni) {
  QKernels k;
  k.words = tile_words;
  if (vnni) k.bytes = tile_bytes;
  k.copy_words = copy_words;
  k.copy_bytes = copy_bytes;
  k.depthwise_words = depthwise_words;
  if (vnni) k.depthwise_bytes = depthwise_bytes;
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
