#include <cstring>
#include <type_traits>

#include "engine/numeric/f16.h"
#include "engine/ops/activation_simd.h"
#include "engine/ops/matmul/wmatmul.h"

namespace pare::PARE_SIMD {
namespace {

constexpr int kLanes = F32::kLanes;
constexpr int kVectors = 4;  // of a panel: as many sums as it takes to hide the latency of one
constexpr int kCodesOfWord = 8;
using Byte = std::uint8_t;
using Shift = WMatMulTask::Shift;

// kLanes floats that lie as float16 or float32.
PARE_INLINE F32 load_parameters(const Byte* p, bool half) {
#if PARE_SIMD_LEVEL == 2
  return {half ? _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))
               : _mm512_loadu_ps(p)};
#elif PARE_SIMD_LEVEL == 1
  return {half ? _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))
               : _mm256_loadu_ps(reinterpret_cast<const float*>(p))};
#else
  if (half) {
    std::uint16_t code;
    std::memcpy(&code, p, sizeof code);
    return {decode_f16(code)};
  }
  float value;
  std::memcpy(&value, p, sizeof value);
  return {value};
#endif
}

// A vector of words whose low four bits are the next codes.
struct Words {
#if PARE_SIMD_LEVEL == 2
  __m512i w;
  PARE_INLINE void load(const Byte* p) { w = _mm512_loadu_si512(p); }
  PARE_INLINE void next() { w = _mm512_srli_epi32(w, 4); }
#elif PARE_SIMD_LEVEL == 1
  __m256i w;
  PARE_INLINE void load(const Byte* p) { w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  PARE_INLINE void next() { w = _mm256_srli_epi32(w, 4); }
#else
  std::uint32_t w;
  PARE_INLINE void load(const Byte* p) { std::memcpy(&w, p, sizeof w); }
  PARE_INLINE void next() { w >>= 4; }
#endif
};

// What the sixteen codes of four bits stand for.
struct Table {
#if PARE_SIMD_LEVEL == 2
  __m512 t;
  PARE_INLINE explicit Table(const float* values) : t(_mm512_loadu_ps(values)) {}
  PARE_INLINE F32 operator()(const Words& words) const { return {_mm512_permutexvar_ps(words.w, t)}; }
#elif PARE_SIMD_LEVEL == 1
  __m256 low, high;
  PARE_INLINE explicit Table(const float* values)
      : low(_mm256_loadu_ps(values)), high(_mm256_loadu_ps(values + 8)) {}
  PARE_INLINE F32 operator()(const Words& words) const {  // three bits choose, the fourth which table
    const __m256 fourth = _mm256_castsi256_ps(_mm256_slli_epi32(words.w, 28));
    return {_mm256_blendv_ps(_mm256_permutevar8x32_ps(low, words.w), _mm256_permutevar8x32_ps(high, words.w),
                             fourth)};
  }
#else
  const float* values;
  PARE_INLINE explicit Table(const float* v) : values(v) {}
  PARE_INLINE F32 operator()(const Words& words) const { return {values[words.w & 15]}; }
#endif
};

// Where code i stands for first + i: two codes at a time are moved to bits 12 to 19, and are floats with the
// exponent put above them (kNearCode, kFarCode).
struct Folded {
  PARE_INLINE explicit Folded(const float*) {}
};
#if PARE_SIMD_LEVEL == 2
using Counted = Table;
template <int kPair>
PARE_INLINE Words pair_of(const Words& words) {
  constexpr int kBits = 12 - 8 * kPair;
  if constexpr (kBits >= 0) return {_mm512_slli_epi32(words.w, kBits)};
  return {_mm512_srli_epi32(words.w, -kBits)};
}
PARE_INLINE F32 near_of(const Words& pair) {
  return {_mm512_castsi512_ps(
      _mm512_ternarylogic_epi32(pair.w, _mm512_set1_epi32(0xF000), _mm512_set1_epi32(0x45000000), 0xEA))};
}
PARE_INLINE F32 far_of(const Words& pair) {
  return {_mm512_castsi512_ps(
      _mm512_ternarylogic_epi32(pair.w, _mm512_set1_epi32(0xF0000), _mm512_set1_epi32(0x43000000), 0xEA))};
}
#elif PARE_SIMD_LEVEL == 1
// The same where code i stands for first + i: a look-up takes two shuffles here, and those have one port.
struct Counted {
  __m256 first;
  PARE_INLINE explicit Counted(const float* values) : first(_mm256_set1_ps(values[0])) {}
  PARE_INLINE F32 operator()(const Words& words) const {
    const __m256i code = _mm256_and_si256(words.w, _mm256_set1_epi32(15));
    return {_mm256_add_ps(_mm256_cvtepi32_ps(code), first)};
  }
};
template <int kPair>
PARE_INLINE Words pair_of(const Words& words) {
  constexpr int kBits = 12 - 8 * kPair;
  if constexpr (kBits >= 0) return {_mm256_slli_epi32(words.w, kBits)};
  return {_mm256_srli_epi32(words.w, -kBits)};
}
PARE_INLINE F32 put_below(const Words& pair, int codes, int exponent) {
  return {_mm256_castsi256_ps(
      _mm256_or_si256(_mm256_and_si256(pair.w, _mm256_set1_epi32(codes)), _mm256_set1_epi32(exponent)))};
}
PARE_INLINE F32 near_of(const Words& pair) { return put_below(pair, 0xF000, 0x45000000); }
PARE_INLINE F32 far_of(const Words& pair) { return put_below(pair, 0xF0000, 0x43000000); }
#else
using Counted = Table;
template <int kPair>
PARE_INLINE Words pair_of(const Words& words) {
  return {words.w >> (8 * kPair)};
}
PARE_INLINE F32 near_of(const Words& pair) { return {kNearCode + static_cast<float>(pair.w & 15)}; }
PARE_INLINE F32 far_of(const Words& pair) { return {kFarCode + static_cast<float>(pair.w >> 4 & 15)}; }
#endif

PARE_INLINE F32 load_bytes(const Byte* p) {  // int8
#if PARE_SIMD_LEVEL == 2
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
#elif PARE_SIMD_LEVEL == 1
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))))};
#else
  return {static_cast<float>(static_cast<std::int8_t>(*p))};
#endif
}

struct Bytes {  // codes of 8 bits
  PARE_INLINE explicit Bytes(const float*) {}
};

template <Shift kShift>
PARE_INLINE F32 weight(F32 value, F32 scale, F32 other) {
  if constexpr (kShift == Shift::kNone) return scale * value;
  if constexpr (kShift == Shift::kZero) return scale * (value - other);
  return fma(scale, value, other);
}

// scale * (first - 2^e - other), or with kOffset that of first - 2^e and other added.
template <Shift kShift>
PARE_INLINE F32 addend(float start, F32 scale, F32 other) {
  if constexpr (kShift == Shift::kNone) return scale * F32::set(start);
  if constexpr (kShift == Shift::kZero) return scale * (F32::set(start) - other);
  return fma(scale, F32::set(start), other);
}

// A pair of codes of each vector: take(k, v, w) for those below `left`. Vector by vector, with the word
// loaded for each pair: so 16 registers hold the sums, scales, masks and one pair.
template <int kPair, int NV, typename Take>
PARE_INLINE void take_pair(const Byte* p, std::int64_t k, std::int64_t left, const F32* scale,
                           const F32* near, const F32* far, Take take) {
  if (left <= 2 * kPair) return;
  PARE_UNROLL for (int v = 0; v < NV; ++v) {
    Words words;
    words.load(p + v * kLanes * 4);
    const Words pair = pair_of<kPair>(words);
    take(k + 2 * kPair, v, fma(scale[v], near_of(pair), near[v]));
    if (left > 2 * kPair + 1) take(k + 2 * kPair + 1, v, fma(scale[v], far_of(pair), far[v]));
  }
}

// Walks NV vectors of columns from `p` on; take(k, v, w) gets each weight. `step`: vectors of the panel.
template <int NV, typename Codes, Shift kShift, typename Take>
PARE_INLINE void walk(const WMatMulTask& t, int first, int step, Take take) {
  const Byte* p = t.b;
  const std::int64_t parameter = t.half ? 2 : 4;
  const Codes table(t.values);
  for (std::int64_t k = 0; k < t.k; k += t.group) {
    const std::int64_t count = t.k - k < t.group ? t.k - k : t.group;
    F32 scale[NV], other[NV];
    PARE_UNROLL for (int v = 0; v < NV; ++v) {
      scale[v] = load_parameters(p + (first + v) * kLanes * parameter, t.half);
      other[v] = F32::zero();
    }
    p += step * kLanes * parameter;
    if constexpr (kShift != Shift::kNone) {
      PARE_UNROLL for (int v = 0; v < NV; ++v) other[v] =
          load_parameters(p + (first + v) * kLanes * parameter, t.half);
      p += step * kLanes * parameter;
    }
    if constexpr (std::is_same_v<Codes, Bytes>) {
      for (std::int64_t i = 0; i < count; ++i) {
        PARE_UNROLL for (int v = 0; v < NV; ++v)
            take(k + i, v, weight<kShift>(load_bytes(p + (first + v) * kLanes), scale[v], other[v]));
        p += step * kLanes;
      }
    } else if constexpr (std::is_same_v<Codes, Folded>) {
      F32 near[NV], far[NV];
      PARE_UNROLL for (int v = 0; v < NV; ++v) {
        near[v] = addend<kShift>(t.values[0] - kNearCode, scale[v], other[v]);
        far[v] = addend<kShift>(t.values[0] - kFarCode, scale[v], other[v]);
      }
      const auto take_word = [&](std::int64_t at, std::int64_t left) __attribute__((always_inline)) {
        const Byte* words = p + first * kLanes * 4;
        take_pair<0, NV>(words, at, left, scale, near, far, take);
        take_pair<1, NV>(words, at, left, scale, near, far, take);
        take_pair<2, NV>(words, at, left, scale, near, far, take);
        take_pair<3, NV>(words, at, left, scale, near, far, take);
        p += step * kLanes * 4;
      };
      std::int64_t i = 0;
      for (; i + kCodesOfWord <= count; i += kCodesOfWord) take_word(k + i, kCodesOfWord);
      if (i < count) take_word(k + i, count - i);
    } else {
      std::int64_t i = 0;
      for (; i + kCodesOfWord <= count; i += kCodesOfWord) {
        Words words[NV];
        PARE_UNROLL for (int v = 0; v < NV; ++v) words[v].load(p + (first + v) * kLanes * 4);
        PARE_UNROLL for (int j = 0; j < kCodesOfWord; ++j) {
          PARE_UNROLL for (int v = 0; v < NV; ++v) {
            take(k + i + j, v, weight<kShift>(table(words[v]), scale[v], other[v]));
            words[v].next();
          }
        }
        p += step * kLanes * 4;
      }
      if (i < count) {
        Words words[NV];
        PARE_UNROLL for (int v = 0; v < NV; ++v) words[v].load(p + (first + v) * kLanes * 4);
        for (; i < count; ++i) {
          PARE_UNROLL for (int v = 0; v < NV; ++v) {
            take(k + i, v, weight<kShift>(table(words[v]), scale[v], other[v]));
            words[v].next();
          }
        }
        p += step * kLanes * 4;
      }
    }
  }
}

PARE_INLINE int vectors_of(std::int64_t columns) { return static_cast<int>((columns + kLanes - 1) / kLanes); }

// MR rows, NV vectors of the panel from `first` on. The last line as gemm_f32_simd.cpp has it.
template <int MR, int NV, typename Codes, Shift kShift>
void multiply(const WMatMulTask& t, std::int64_t row, int first) {
  F32 sums[MR][NV];
  PARE_UNROLL for (int r = 0; r < MR; ++r) {
    PARE_UNROLL for (int v = 0; v < NV; ++v) sums[r][v] = F32::zero();
  }
  const float* a = t.a + row * t.lda;
  const std::int64_t lda = t.lda;
  walk<NV, Codes, kShift>(
      t, first, vectors_of(t.n), [&](std::int64_t k, int v, F32 w) __attribute__((always_inline)) {
        PARE_UNROLL for (int r = 0; r < MR; ++r) sums[r][v] = fma(F32::set(a[r * lda + k]), w, sums[r][v]);
      });
  const F32 lo = F32::set(t.act->lo), hi = F32::set(t.act->hi);
  const bool clips = t.act->kind == Activation::Kind::kClip;
  for (int v = 0; v < NV; ++v) {
    const std::int64_t column = static_cast<std::int64_t>(first + v) * kLanes;
    const int lanes = t.n - column < kLanes ? static_cast<int>(t.n - column) : kLanes;
    for (int r = 0; r < MR; ++r) {
      F32 y = sums[r][v];
      if (t.bias != nullptr) y = y + F32::load(t.bias + column, lanes);
      if (t.residual != nullptr) y = y + F32::load(t.residual + (row + r) * t.ldr + column, lanes);
      if (clips) y = clip(y, lo, hi);
      float* to = t.c + (row + r) * t.ldc + column;
      y.store(to, lanes);
      if (!clips) activate_floats(*t.act, to, lanes);
    }
  }
}

template <typename Codes, Shift kShift>
void multiply_rows(const WMatMulTask& t) {
  const int vectors = vectors_of(t.n);
  for (std::int64_t row = 0; row < t.m;) {
    const std::int64_t left = t.m - row;
    for (int first = 0; first < vectors;) {
      const int step = vectors - first >= kVectors ? kVectors : 1;
      if (step == kVectors)
        (left >= 4   ? multiply<4, kVectors, Codes, kShift>
         : left >= 2 ? multiply<2, kVectors, Codes, kShift>
                     : multiply<1, kVectors, Codes, kShift>)(t, row, first);
      else
        (left >= 4   ? multiply<4, 1, Codes, kShift>
         : left >= 2 ? multiply<2, 1, Codes, kShift>
                     : multiply<1, 1, Codes, kShift>)(t, row, first);
      first += step;
    }
    row += left >= 4 ? 4 : left >= 2 ? 2 : 1;
  }
}

// A gemm panel is two vectors wide, the last may be one.
template <typename Codes, Shift kShift>
void unpack(const WMatMulTask& t, float* packed) {
  const int vectors = vectors_of(t.n);
  for (int first = 0; first < vectors; first += 2) {
    float* to = packed + static_cast<std::int64_t>(first) * kLanes * t.k;
    if (vectors - first >= 2)
      walk<2, Codes, kShift>(
          t, first, vectors, [=](std::int64_t k, int v, F32 w) __attribute__((always_inline)) {
            w.store(to + (k * 2 + v) * kLanes);
          });
    else
      walk<1, Codes, kShift>(
          t, first, vectors, [=](std::int64_t k, int, F32 w) __attribute__((always_inline)) {
            w.store(to + k * kLanes);
          });
  }
}

}  // namespace

int wmatmul_lanes() { return kLanes; }
std::int64_t wmatmul_panel() { return kVectors * kLanes; }

#define PARE_DISPATCH_SHIFT(function, codes, ...)                                 \
  if (t.shift == Shift::kNone) return function<codes, Shift::kNone>(__VA_ARGS__); \
  if (t.shift == Shift::kZero) return function<codes, Shift::kZero>(__VA_ARGS__); \
  return function<codes, Shift::kOffset>(__VA_ARGS__);
#define PARE_DISPATCH(function, ...)                    \
  if (t.bits == 8) {                                    \
    PARE_DISPATCH_SHIFT(function, Bytes, __VA_ARGS__)   \
  }                                                     \
  if (t.folded) {                                       \
    PARE_DISPATCH_SHIFT(function, Folded, __VA_ARGS__)  \
  }                                                     \
  if (t.counted) {                                      \
    PARE_DISPATCH_SHIFT(function, Counted, __VA_ARGS__) \
  }                                                     \
  PARE_DISPATCH_SHIFT(function, Table, __VA_ARGS__)

void wmatmul_rows(const WMatMulTask& t) { PARE_DISPATCH(multiply_rows, t) }
void wmatmul_unpack(const WMatMulTask& t, float* packed) { PARE_DISPATCH(unpack, t, packed) }
#undef PARE_DISPATCH
#undef PARE_DISPATCH_SHIFT

}  // namespace pare::PARE_SIMD
