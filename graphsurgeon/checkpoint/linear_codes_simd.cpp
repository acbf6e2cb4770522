#include "graphsurgeon/checkpoint/linear_codes_simd.h"

#include "engine/numeric/e2m1.h"
#include "engine/numeric/e4m3.h"

namespace pare::PARE_SIMD {
namespace {

constexpr std::uint32_t kPrime = 0x9E3779B1u;
constexpr int kTurn = 13;

// Vectors of the compiler, as wide as the class has them.
constexpr int kWide = PARE_SIMD_LEVEL == 2 ? 16 : PARE_SIMD_LEVEL == 1 ? 8 : 4;
typedef std::uint32_t Words __attribute__((vector_size(4 * kWide)));
typedef float Floats __attribute__((vector_size(4 * kWide)));

// Runs of 16, which compilers turn into whole vectors also where a group is no longer than that.
template <class Op>
PARE_INLINE void for_each(std::int64_t n, Op op) {
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (std::int64_t k = 0; k < 16; ++k) op(i + k);
  for (; i < n; ++i) op(i);
}

PARE_INLINE Words mixed(Words lanes, Words bits) {
  lanes = (lanes ^ bits) * kPrime;
  return lanes << kTurn | lanes >> (32 - kTurn);
}

// Values of E4M3 codes, as decode_e4m3 gives them. Moved up by 7 bits a code is the float16 of its value
// times 2^-8, subnormal or not; NaN apart.
PARE_INLINE void e4m3_values(const std::uint8_t* codes, float step, float* values) {
#if PARE_SIMD_LEVEL == 2
  const __m256i code = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const __m256i magnitude = _mm256_and_si256(code, _mm256_set1_epi16(0x7F));
  const __m256i sign = _mm256_slli_epi16(_mm256_xor_si256(code, magnitude), 8);
  const __m256i nan = _mm256_set1_epi16(0x7E00);
  const __mmask16 odd = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x7F));
  const __m256i half =
      _mm256_or_si256(_mm256_mask_blend_epi16(odd, _mm256_slli_epi16(magnitude, 7), nan), sign);
  const __m512 value = _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256));
  _mm512_storeu_ps(values, _mm512_mul_ps(value, _mm512_set1_ps(step)));
#elif PARE_SIMD_LEVEL == 1
  const __m128i code = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
  const __m128i magnitude = _mm_and_si128(code, _mm_set1_epi16(0x7F));
  const __m128i sign = _mm_slli_epi16(_mm_xor_si128(code, magnitude), 8);
  const __m128i odd = _mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7F));
  const __m128i half =
      _mm_or_si128(_mm_blendv_epi8(_mm_slli_epi16(magnitude, 7), _mm_set1_epi16(0x7E00), odd), sign);
  const __m256 value = _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256));
  _mm256_storeu_ps(values, _mm256_mul_ps(value, _mm256_set1_ps(step)));
#else
  for (int i = 0; i < kWide; ++i) values[i] = decode_e4m3(codes[i]) * step;
#endif
}

// 16 values of E2M1 codes, whose upper bits do not count.
PARE_INLINE void e2m1_values(const std::uint8_t* codes, float step, float* values) {
#if PARE_SIMD_LEVEL == 2
  const __m512 table = _mm512_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6);
  const __m512i code = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  _mm512_storeu_ps(values, _mm512_mul_ps(_mm512_permutexvar_ps(code, table), _mm512_set1_ps(step)));
#elif PARE_SIMD_LEVEL == 1
  const __m256 table = _mm256_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6);
  for (int half = 0; half < 16; half += 8) {
    const __m256i code =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + half)));
    const __m256 sign =
        _mm256_and_ps(_mm256_castsi256_ps(_mm256_slli_epi32(code, 28)), _mm256_set1_ps(-0.0f));
    const __m256 value = _mm256_or_ps(_mm256_permutevar8x32_ps(table, code), sign);
    _mm256_storeu_ps(values + half, _mm256_mul_ps(value, _mm256_set1_ps(step)));
  }
#else
  for (int i = 0; i < 16; ++i) values[i] = decode_e2m1(codes[i]) * step;
#endif
}

PARE_INLINE void group(LinearCodes type, const std::uint8_t* __restrict codes, std::int64_t n, float step,
                       float zero, float* __restrict values) {
  switch (type) {
    case LinearCodes::kSigned:
      return for_each(
          n, [=](std::int64_t i) __attribute__((always_inline)) {
            values[i] = (static_cast<float>(static_cast<std::int8_t>(codes[i])) - zero) * step;
          });
    case LinearCodes::kUnsigned:
      return for_each(
          n, [=](std::int64_t i) __attribute__((always_inline)) {
            values[i] = (static_cast<float>(codes[i]) - zero) * step;
          });
    case LinearCodes::kE4M3: {
      std::int64_t i = 0;
      for (; i + kWide <= n; i += kWide) e4m3_values(codes + i, step, values + i);
      for (; i < n; ++i) values[i] = decode_e4m3(codes[i]) * step;
      return;
    }
    case LinearCodes::kE2M1: {
      std::int64_t i = 0;
      for (; i + 16 <= n; i += 16) e2m1_values(codes + i, step, values + i);
      for (; i < n; ++i) values[i] = decode_e2m1(codes[i]) * step;
      return;
    }
  }
}

template <LinearCodes kType>
void row(const std::uint8_t* codes, std::int64_t n, std::int64_t width, const float* steps,
         const float* zeros, float* values) {
  for (std::int64_t c = 0, g = 0; c < n; c += width, ++g) {
    const float zero = zeros == nullptr ? 0.0f : zeros[g];
    const std::int64_t count = n - c < width ? n - c : width;
    if (count == 16)  // known here, so that no loop is left
      group(kType, codes + c, 16, steps[g], zero, values + c);
    else
      group(kType, codes + c, count, steps[g], zero, values + c);
  }
}

}  // namespace

void linear_code_range(const std::uint8_t* codes, std::int64_t n, bool with_sign, int* low, int* high) {
  const std::uint8_t flip = with_sign ? 0x80 : 0;  // the order of numbers is then that of bytes
  std::uint8_t least = 0xFF, largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint8_t code = static_cast<std::uint8_t>(codes[i] ^ flip);
    least = code < least ? code : least;
    largest = code > largest ? code : largest;
  }
  *low = n == 0 ? 0 : least - flip;
  *high = n == 0 ? 0 : largest - flip;
}

void linear_values(LinearCodes type, const std::uint8_t* codes, std::int64_t n, std::int64_t width,
                   const float* steps, const float* zeros, float* values) {
  switch (type) {
    case LinearCodes::kSigned:
      return row<LinearCodes::kSigned>(codes, n, width, steps, zeros, values);
    case LinearCodes::kUnsigned:
      return row<LinearCodes::kUnsigned>(codes, n, width, steps, zeros, values);
    case LinearCodes::kE4M3:
      return row<LinearCodes::kE4M3>(codes, n, width, steps, zeros, values);
    case LinearCodes::kE2M1:
      return row<LinearCodes::kE2M1>(codes, n, width, steps, zeros, values);
  }
}

void linear_hash(const float* values, std::int64_t n, std::uint32_t* lanes) {
  constexpr int kVectors = kHashLanes / kWide;
  Words mix[kVectors];
  PARE_UNROLL for (int v = 0; v < kVectors; ++v) __builtin_memcpy(&mix[v], lanes + v * kWide, sizeof mix[v]);
  std::int64_t i = 0;
  for (; i + kHashLanes <= n; i += kHashLanes) PARE_UNROLL for (int v = 0; v < kVectors; ++v) {
      Floats x;
      __builtin_memcpy(&x, values + i + v * kWide, sizeof x);
      mix[v] = mixed(mix[v], (Words)(x + 0.0f));
    }
  PARE_UNROLL for (int v = 0; v < kVectors; ++v) __builtin_memcpy(lanes + v * kWide, &mix[v], sizeof mix[v]);
  for (std::int64_t lane = 0; i < n; ++i, ++lane) {
    const std::uint32_t one = (lanes[lane] ^ float_bits(values[i] + 0.0f)) * kPrime;
    lanes[lane] = one << kTurn | one >> (32 - kTurn);
  }
}

}  // namespace pare::PARE_SIMD
