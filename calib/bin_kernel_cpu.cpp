#include <immintrin.h>

#include <algorithm>
#include <array>

#include "calib/bin_kernel.h"
#include "calib/bin_kernel_simd.h"

#define PARE_AVX2 __attribute__((target("avx2,fma,f16c")))
#define PARE_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd")))

namespace pare {

namespace {

// What is left over at the end of a block, or the whole of a short one.
BlockSummary summarize_rest(BlockSummary s, const float* values, std::int64_t n) {
  if (n == 0) return s;
  const BlockSummary rest = bin_kernel(Isa::kScalar).summarize(values, n);
  s.largest = std::max(s.largest, rest.largest);
  s.min = std::min(s.min, rest.min);
  s.max = std::max(s.max, rest.max);
  s.zeros += rest.zeros;
  return s;
}

PARE_AVX2 BlockSummary summarize_avx2(const float* values, std::int64_t n) {
  if (n < 8) return bin_kernel(Isa::kScalar).summarize(values, n);
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i largest = _mm256_setzero_si256(), zeros = _mm256_setzero_si256();
  __m256 low = _mm256_loadu_ps(values), high = low;
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 x = _mm256_loadu_ps(values + i);
    const __m256i code = _mm256_and_si256(_mm256_castps_si256(x), magnitude);
    largest = _mm256_max_epi32(largest, code);
    low = _mm256_min_ps(low, x);
    high = _mm256_max_ps(high, x);
    zeros = _mm256_sub_epi32(zeros, _mm256_cmpeq_epi32(code, _mm256_setzero_si256()));
  }
  alignas(32) std::uint32_t codes[8], counts[8];
  alignas(32) float lows[8], highs[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(codes), largest);
  _mm256_store_si256(reinterpret_cast<__m256i*>(counts), zeros);
  _mm256_store_ps(lows, low);
  _mm256_store_ps(highs, high);
  BlockSummary s{codes[0], lows[0], highs[0], 0};
  for (int k = 0; k < 8; ++k) {
    s.largest = std::max(s.largest, codes[k]);
    s.min = std::min(s.min, lows[k]);
    s.max = std::max(s.max, highs[k]);
    s.zeros += counts[k];
  }
  s.min += 0.0f;
  s.max += 0.0f;
  return summarize_rest(s, values + i, n - i);
}

// For each mask of eight: the byte shuffle that moves the chosen 16-bit elements to the front.
constexpr std::array<std::array<std::uint8_t, 16>, 256> make_packing() {
  std::array<std::array<std::uint8_t, 16>, 256> table{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    unsigned to = 0;
    for (unsigned element = 0; element < 8; ++element)
      if (mask >> element & 1) {
        table[mask][2 * to] = static_cast<std::uint8_t>(2 * element);
        table[mask][2 * to + 1] = static_cast<std::uint8_t>(2 * element + 1);
        ++to;
      }
    for (; to < 8; ++to) table[mask][2 * to] = table[mask][2 * to + 1] = 0x80;
  }
  return table;
}
alignas(64) constexpr auto kPacking = make_packing();

PARE_AVX2 std::int64_t list_bins_avx2(const float* values, std::int64_t n, float scale, std::uint16_t* list) {
  const __m256 sign = _mm256_set1_ps(-0.0f), zero = _mm256_setzero_ps(), scales = _mm256_set1_ps(scale);
  const __m256i side = _mm256_set1_epi32(4096);
  std::int64_t i = 0, count = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 x = _mm256_loadu_ps(values + i);
    const __m256i bin = _mm256_cvttps_epi32(_mm256_mul_ps(_mm256_andnot_ps(sign, x), scales));
    const __m256i below = _mm256_castps_si256(_mm256_cmp_ps(x, zero, _CMP_LT_OQ));
    const __m256i signed_bin = _mm256_or_si256(bin, _mm256_and_si256(below, side));
    const auto keep = static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(x, zero, _CMP_NEQ_OQ)));
    const __m128i packed =
        _mm_packus_epi32(_mm256_castsi256_si128(signed_bin), _mm256_extracti128_si256(signed_bin, 1));
    const __m128i order = _mm_load_si128(reinterpret_cast<const __m128i*>(kPacking[keep].data()));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(list + count), _mm_shuffle_epi8(packed, order));
    count += __builtin_popcount(keep);
  }
  return count + bin_kernel(Isa::kScalar).list_bins(values + i, n - i, scale, list + count);
}

PARE_AVX512 BlockSummary summarize_avx512(const float* values, std::int64_t n) {
  if (n < 16) return bin_kernel(Isa::kScalar).summarize(values, n);
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  __m512i largest = _mm512_setzero_si512();
  __m512 low = _mm512_loadu_ps(values), high = low;
  std::int64_t i = 0, zeros = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512 x = _mm512_loadu_ps(values + i);
    const __m512i code = _mm512_and_si512(_mm512_castps_si512(x), magnitude);
    largest = _mm512_max_epi32(largest, code);
    low = _mm512_min_ps(low, x);
    high = _mm512_max_ps(high, x);
    zeros += __builtin_popcount(_mm512_testn_epi32_mask(code, code));
  }
  BlockSummary s{static_cast<std::uint32_t>(_mm512_reduce_max_epi32(largest)), 0, 0, zeros};
  alignas(64) float lows[16], highs[16];
  _mm512_store_ps(lows, low);
  _mm512_store_ps(highs, high);
  s.min = *std::min_element(lows, lows + 16) + 0.0f;
  s.max = *std::max_element(highs, highs + 16) + 0.0f;
  return summarize_rest(s, values + i, n - i);
}

PARE_AVX512 std::int64_t list_bins_avx512(const float* values, std::int64_t n, float scale,
                                          std::uint16_t* list) {
  const __m512 zero = _mm512_setzero_ps(), scales = _mm512_set1_ps(scale);
  const __m512i side = _mm512_set1_epi32(4096);
  std::int64_t i = 0, count = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512 x = _mm512_loadu_ps(values + i);
    const __m512i bin = _mm512_cvttps_epi32(_mm512_mul_ps(_mm512_abs_ps(x), scales));
    const __m512i signed_bin = _mm512_mask_or_epi32(bin, _mm512_cmp_ps_mask(x, zero, _CMP_LT_OQ), bin, side);
    const __mmask16 keep = _mm512_cmp_ps_mask(x, zero, _CMP_NEQ_OQ);
    const __m512i front = _mm512_maskz_compress_epi32(keep, signed_bin);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(list + count), _mm512_cvtepi32_epi16(front));
    count += __builtin_popcount(keep);
  }
  return count + bin_kernel(Isa::kScalar).list_bins(values + i, n - i, scale, list + count);
}

constexpr BinKernel kAvx2Kernel{"avx2", summarize_avx2, list_bins_avx2};
constexpr BinKernel kAvx512Kernel{"avx512", summarize_avx512, list_bins_avx512};

}  // namespace

const BinKernel& bin_kernel_avx2() { return kAvx2Kernel; }
const BinKernel& bin_kernel_avx512() { return kAvx512Kernel; }

}  // namespace pare
