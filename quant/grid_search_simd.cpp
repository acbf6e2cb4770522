#include "quant/grid_search_simd.h"

#include "engine/numeric/bf16.h"
#include "engine/numeric/f16.h"

namespace pare::PARE_SIMD {
namespace {

constexpr int kLanes = kSearchLanes;

// The largest power of two not above |a|; 0 where |a| is denormal.
PARE_INLINE F32 binade(F32 a) {
#if PARE_SIMD_LEVEL == 2
  return {_mm512_and_ps(a.v, _mm512_castsi512_ps(_mm512_set1_epi32(0x7F800000)))};
#elif PARE_SIMD_LEVEL == 1
  return {_mm256_and_ps(a.v, _mm256_castsi256_ps(_mm256_set1_epi32(0x7F800000)))};
#else
  return {std::bit_cast<float>(std::bit_cast<std::uint32_t>(a.v) & 0x7F800000u)};
#endif
}

PARE_INLINE float least_lane(F32 a) {
#if PARE_SIMD_LEVEL == 2
  return _mm512_reduce_min_ps(a.v);
#elif PARE_SIMD_LEVEL == 1
  __m128 m = _mm_min_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  m = _mm_min_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_min_ss(m, _mm_movehdup_ps(m)));
#else
  return a.v;
#endif
}

template <bool kInteger>
PARE_INLINE F32 steps(F32 quotient, F32 low, F32 high, F32 smallest, F32 magic) {
  const F32 inside = min(max(quotient, low), high);
  const F32 shift = kInteger ? magic : max(binade(inside), smallest) * magic;
  return (inside + shift) - shift;
}

// Sums of one candidate over a tile, for the lanes [v, v + F32::kLanes).
template <bool kInteger, bool kWeighted, bool kExact, bool kMoments>
PARE_INLINE void one_pass(const SearchTile& tile, const SearchCodec& codec, const SearchLanes& lanes, int v,
                          F32& ee, F32& ed, F32& dd) {
  const F32 scale = F32::load(lanes.scale + v), low = F32::load(lanes.low + v),
            high = F32::load(lanes.high + v);
  const F32 inverse = F32::set(1.0f) / scale;
  const F32 smallest = F32::set(codec.smallest_normal), magic = F32::set(codec.magic);
  ee = F32::zero(), ed = F32::zero(), dd = F32::zero();
  const float* x = tile.x + v;
  const float* h = kWeighted ? tile.h + v : nullptr;
  for (std::int64_t i = 0; i < tile.rows; ++i, x += kLanes) {
    const F32 value = F32::load(x);
    const F32 d = steps<kInteger>(kExact ? value / scale : value * inverse, low, high, smallest, magic);
    const F32 e = value - d * scale;
    F32 he = e, hd = d;
    if constexpr (kWeighted) {
      const F32 weight = F32::load(h);
      he = e * weight;
      if constexpr (kMoments) hd = d * weight;
      h += kLanes;
    }
    ee = ee + he * e;
    if constexpr (kMoments) {
      ed = ed + he * d;
      dd = dd + hd * d;
    }
  }
}

PARE_INLINE void add(F32 sums, double* into) {
  float lane[F32::kLanes];
  sums.store(lane);
  for (int i = 0; i < F32::kLanes; ++i) into[i] += static_cast<double>(lane[i]);
}

template <bool kInteger, bool kWeighted, bool kExact>
void moments(const SearchTile& tile, const SearchCodec& codec, const SearchLanes* lanes, int count,
             SearchSums* sums) {
  for (int c = 0; c < count; ++c)
    for (int v = 0; v < kLanes; v += F32::kLanes) {
      F32 ee, ed, dd;
      one_pass<kInteger, kWeighted, kExact, true>(tile, codec, lanes[c], v, ee, ed, dd);
      add(ee, sums[c].ee + v);
      add(ed, sums[c].ed + v);
      add(dd, sums[c].dd + v);
    }
}

template <bool kInteger, bool kWeighted>
void errors_only(const SearchTile& tile, const SearchCodec& codec, const SearchLanes* lanes, int count,
                 double* errors) {
  for (int c = 0; c < count; ++c)
    for (int v = 0; v < kLanes; v += F32::kLanes) {
      F32 ee, ed, dd;
      one_pass<kInteger, kWeighted, true, false>(tile, codec, lanes[c], v, ee, ed, dd);
      add(ee, errors + c * kLanes + v);
    }
}

}  // namespace

void search_sums(const SearchTile& tile, const SearchCodec& codec, const SearchLanes* lanes, int count,
                 bool exact, SearchSums* sums) {
  const int which = (codec.is_integer ? 4 : 0) + (tile.h != nullptr ? 2 : 0) + (exact ? 1 : 0);
  constexpr decltype(&moments<true, true, true>) kTable[] = {
      moments<false, false, false>, moments<false, false, true>, moments<false, true, false>,
      moments<false, true, true>,   moments<true, false, false>, moments<true, false, true>,
      moments<true, true, false>,   moments<true, true, true>};
  kTable[which](tile, codec, lanes, count, sums);
}

void search_errors(const SearchTile& tile, const SearchCodec& codec, const SearchLanes* lanes, int count,
                   double* errors) {
  if (codec.is_integer)
    (tile.h != nullptr ? errors_only<true, true> : errors_only<true, false>)(tile, codec, lanes, count,
                                                                             errors);
  else
    (tile.h != nullptr ? errors_only<false, true> : errors_only<false, false>)(tile, codec, lanes, count,
                                                                               errors);
}

void search_clipped(const SearchTile& tile, const float* edge, double* errors) {
  for (int v = 0; v < kLanes; v += F32::kLanes) {
    const F32 limit = F32::load(edge + v);
    F32 sum = F32::zero();
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const F32 over = max(abs(F32::load(tile.x + i * kLanes + v)) - limit, F32::zero());
      const F32 weighted = tile.h != nullptr ? over * F32::load(tile.h + i * kLanes + v) : over;
      sum = sum + weighted * over;
    }
    add(sum, errors + v);
  }
}

void search_moments(const SearchTile& tile, double* power, double* sum, double* weight) {
  for (int v = 0; v < kLanes; v += F32::kLanes) {
    F32 xx = F32::zero(), x1 = F32::zero(), h1 = F32::zero();
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const F32 x = F32::load(tile.x + i * kLanes + v);
      const F32 h = tile.h != nullptr ? F32::load(tile.h + i * kLanes + v) : F32::set(1.0f);
      const F32 hx = h * x;
      xx = xx + hx * x;
      x1 = x1 + hx;
      h1 = h1 + h;
    }
    add(xx, power + v);
    add(x1, sum + v);
    add(h1, weight + v);
  }
}

void search_keep(const SearchLanes* lanes, const SearchSums* sums, int count, const double* zeros,
                 SearchKept* kept) {
  double* __restrict score0 = kept->score[0];
  double* __restrict score1 = kept->score[1];
  double* __restrict scale0 = kept->scale[0];
  double* __restrict scale1 = kept->scale[1];
  double* __restrict zero0 = kept->zero[0];
  double* __restrict zero1 = kept->zero[1];
  double* __restrict error = kept->error;
  double* __restrict error_scale = kept->error_scale;
  double* __restrict error_zero = kept->error_zero;
  for (int c = 0; c < count; ++c) {
    const SearchSums& sum = sums[c];
    for (int l = 0; l < kLanes; ++l) {
      const double shift = sum.ed[l] / sum.dd[l];      // 0 / 0 where all codes are 0:
      const double e = sum.ee[l] - sum.ed[l] * shift;  // NaN is less than nothing
      const double s = static_cast<double>(lanes[c].scale[l]) + shift, z = zeros[l];
      const bool first = e < score0[l], second = e < score1[l];
      score1[l] = first ? score0[l] : second ? e : score1[l];
      scale1[l] = first ? scale0[l] : second ? s : scale1[l];
      zero1[l] = first ? zero0[l] : second ? z : zero1[l];
      score0[l] = first ? e : score0[l];
      scale0[l] = first ? s : scale0[l];
      zero0[l] = first ? z : zero0[l];
      const bool least = sum.ee[l] < error[l];
      error[l] = least ? sum.ee[l] : error[l];
      error_scale[l] = least ? static_cast<double>(lanes[c].scale[l]) : error_scale[l];
      error_zero[l] = least ? z : error_zero[l];
    }
  }
}

void search_round(SearchRound type, bool positive, float limit, const double* scales, const double* back,
                  const float* instead, float* rounded) {
  float value[kLanes];
  for (int l = 0; l < kLanes; ++l) value[l] = static_cast<float>(scales[l] * back[l]);
  if (type == SearchRound::kBF16)
    for (int l = 0; l < kLanes; ++l) value[l] = decode_bf16(encode_bf16(value[l]));
  else if (type == SearchRound::kF16)
    for (int l = 0; l < kLanes; ++l) value[l] = decode_f16(encode_f16(value[l]));
  for (int l = 0; l < kLanes; ++l) {
    const std::uint32_t bits = float_bits(value[l]);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
    const bool normal = magnitude >= 0x00800000u && magnitude <= float_bits(limit);
    const bool legal = normal && !(positive && bits > 0x7FFFFFFFu);
    rounded[l] = legal ? value[l] : instead[l];
  }
}

void search_gather(const float* const* lines, const std::int64_t* n, std::int64_t rows, float* out) {
  std::int64_t whole = rows;
  for (int l = 0; l < kLanes; ++l) whole = n[l] < whole ? n[l] : whole;
  for (std::int64_t i = 0; i < whole; ++i)
    for (int l = 0; l < kLanes; ++l) out[i * kLanes + l] = lines[l][i];
  for (std::int64_t i = whole; i < rows; ++i)
    for (int l = 0; l < kLanes; ++l) out[i * kLanes + l] = i < n[l] ? lines[l][i] : 0.0f;
}

bool search_lane_extremes(const float* x, std::int64_t rows, float* low, float* high) {
  F32 odd = F32::zero();
  for (int v = 0; v < kLanes; v += F32::kLanes) {
    F32 least = F32::zero(), largest = F32::zero();
    for (std::int64_t i = 0; i < rows; ++i) {
      const F32 value = F32::load(x + i * kLanes + v);
      least = min(value, least);
      largest = max(value, largest);
      odd = odd + (value - value);
    }
    least.store(low + v);
    largest.store(high + v);
  }
  return sum(odd) == 0;
}

void search_scale_lanes(float* x, std::int64_t rows, const float* factors) {
  for (int v = 0; v < kLanes; v += F32::kLanes) {
    const F32 factor = F32::load(factors + v);
    for (std::int64_t i = v; i < rows * kLanes; i += kLanes) (F32::load(x + i) * factor).store(x + i);
  }
}

void search_scale(const float* in, float factor, std::int64_t n, float* out) {
  const F32 f = F32::set(factor);
  transform(in, out, n, [f](F32 x) { return x * f; });
}

bool search_extremes(const float* w, std::int64_t n, float* low, float* high) {
  // Four chains, so that none waits for its own last result.
  constexpr int kChains = 4;
  F32 least[kChains], largest[kChains], odd = F32::zero();
  for (int c = 0; c < kChains; ++c) least[c] = largest[c] = F32::zero();
  const auto look = [&](F32 x, int c) __attribute__((always_inline)) {
    least[c] = min(x, least[c]);
    largest[c] = max(x, largest[c]);
    odd = odd + (x - x);  // NaN if x is no number
  };
  std::int64_t i = 0;
  for (; i + kChains * F32::kLanes <= n; i += kChains * F32::kLanes)
    PARE_UNROLL for (int c = 0; c < kChains; ++c) look(F32::load(w + i + c * F32::kLanes), c);
  for (; i + F32::kLanes <= n; i += F32::kLanes) look(F32::load(w + i), 0);
  if (i < n) look(F32::load(w + i, static_cast<int>(n - i)), 1);
  *low = least_lane(min(min(least[0], least[1]), min(least[2], least[3])));
  *high = -least_lane(F32::zero() - max(max(largest[0], largest[1]), max(largest[2], largest[3])));
  return sum(odd) == 0;
}

bool search_group_extremes(const float* w, std::int64_t groups, std::int64_t width, float* low, float* high) {
  bool good = true;
  for (std::int64_t g = 0; g < groups; ++g, w += width) {
    if (width != F32::kLanes) {
      good &= search_extremes(w, width, low + g, high + g);
      continue;
    }
    const F32 x = F32::load(w);
    low[g] = least_lane(min(x, F32::zero()));
    high[g] = -least_lane(min(F32::zero() - x, F32::zero()));
    good &= sum(x - x) == 0;
  }
  return good;
}

}  // namespace pare::PARE_SIMD
