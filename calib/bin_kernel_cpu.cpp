#include <immintrin.h>

#include <algorithm>
#include <array>

#include "calib/bin_kernel.h"
#include "calib/bin_kernel_simd.h"

#define PARE_AVX2 __attribute__((target("avx2,fma,f16c")))
#define PARE_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

namespace pare {

namespace {

// What is left over at the end of a block, or the whole of a short one.
BlockScan scan_rest(BlockScan s, const float* values, std::int64_t n, float scale, std::uint16_t* list) {
  if (n == 0) return s;
  const BlockScan rest = bin_kernel(Isa::kScalar).scan(values, n, scale, list + s.listed);
  return {std::max(s.largest, rest.largest), std::min(s.min, rest.min), std::max(s.max, rest.max),
          s.listed + rest.listed};
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

PARE_AVX2 BlockScan scan_avx2(const float* values, std::int64_t n, float scale, std::uint16_t* list) {
  if (n < 8) return bin_kernel(Isa::kScalar).scan(values, n, scale, list);
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF), side = _mm256_set1_epi32(4096);
  const __m256 scales = _mm256_set1_ps(scale);
  __m256i largest = _mm256_setzero_si256();
  __m256 low = _mm256_loadu_ps(values), high = low;
  std::int64_t i = 0, count = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 x = _mm256_loadu_ps(values + i);
    const __m256i code = _mm256_and_si256(_mm256_castps_si256(x), magnitude);
    largest = _mm256_max_epi32(largest, code);
    low = _mm256_min_ps(low, x);
    high = _mm256_max_ps(high, x);
    const __m256i bin = _mm256_cvttps_epi32(_mm256_mul_ps(_mm256_castsi256_ps(code), scales));
    // The sign bit moved to where 4096 is; -0 is not kept.
    const __m256i below = _mm256_and_si256(_mm256_srai_epi32(_mm256_castps_si256(x), 31), side);
    const __m256i signed_bin = _mm256_or_si256(bin, below);
    const __m256i none = _mm256_cmpeq_epi32(code, _mm256_setzero_si256());
    const unsigned keep = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(none))) ^ 0xFFu;
    const __m128i packed =
        _mm_packus_epi32(_mm256_castsi256_si128(signed_bin), _mm256_extracti128_si256(signed_bin, 1));
    const __m128i order = _mm_load_si128(reinterpret_cast<const __m128i*>(kPacking[keep].data()));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(list + count), _mm_shuffle_epi8(packed, order));
    count += __builtin_popcount(keep);
  }
  alignas(32) std::uint32_t codes[8];
  alignas(32) float lows[8], highs[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(codes), largest);
  _mm256_store_ps(lows, low);
  _mm256_store_ps(highs, high);
  const BlockScan s{*std::max_element(codes, codes + 8), *std::min_element(lows, lows + 8) + 0.0f,
                    *std::max_element(highs, highs + 8) + 0.0f, count};
  return scan_rest(s, values + i, n - i, scale, list);
}

PARE_AVX512 BlockScan scan_avx512(const float* values, std::int64_t n, float scale, std::uint16_t* list) {
  if (n < 16) return bin_kernel(Isa::kScalar).scan(values, n, scale, list);
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF), side = _mm512_set1_epi32(4096);
  const __m512 scales = _mm512_set1_ps(scale);
  __m512i largest = _mm512_setzero_si512();
  __m512 low = _mm512_loadu_ps(values), high = low;
  std::int64_t i = 0, count = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512 x = _mm512_loadu_ps(values + i);
    const __m512i code = _mm512_and_si512(_mm512_castps_si512(x), magnitude);
    largest = _mm512_max_epi32(largest, code);
    low = _mm512_min_ps(low, x);
    high = _mm512_max_ps(high, x);
    const __m512i bin = _mm512_cvttps_epi32(_mm512_mul_ps(_mm512_castsi512_ps(code), scales));
    const __mmask16 below = _mm512_movepi32_mask(_mm512_castps_si512(x));  // -0 is not kept
    const __mmask16 keep = _mm512_test_epi32_mask(code, code);
    const __m512i front = _mm512_maskz_compress_epi32(keep, _mm512_mask_or_epi32(bin, below, bin, side));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(list + count), _mm512_cvtepi32_epi16(front));
    count += __builtin_popcount(keep);
  }
  alignas(64) float lows[16], highs[16];
  _mm512_store_ps(lows, low);
  _mm512_store_ps(highs, high);
  const BlockScan s{static_cast<std::uint32_t>(_mm512_reduce_max_epi32(largest)),
                    *std::min_element(lows, lows + 16) + 0.0f, *std::max_element(highs, highs + 16) + 0.0f,
                    count};
  return scan_rest(s, values + i, n - i, scale, list);
}

constexpr BinKernel kAvx2Kernel{"avx2", scan_avx2};
constexpr BinKernel kAvx512Kernel{"avx512", scan_avx512};

}  // namespace

const BinKernel& bin_kernel_avx2() { return kAvx2Kernel; }
const BinKernel& bin_kernel_avx512() { return kAvx512Kernel; }

}  // namespace pare
