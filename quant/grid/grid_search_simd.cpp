#include "quant/grid/grid_search_simd.h"

#include "engine/numeric/bf16.h"
#include "engine/numeric/e4m3.h"
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

// Lane l of the result is the least lane of v[l], by pairs: a third of the work of one after the other.
PARE_INLINE F32 least_lanes(const F32* v) {
#if PARE_SIMD_LEVEL == 2
  __m512 pairs[8], fours[4], halves[2];
  PARE_UNROLL for (int i = 0; i < 8; ++i) pairs[i] = _mm512_min_ps(
      _mm512_unpacklo_ps(v[2 * i].v, v[2 * i + 1].v), _mm512_unpackhi_ps(v[2 * i].v, v[2 * i + 1].v));
  PARE_UNROLL for (int i = 0; i < 4; ++i) {
    const __m512d a = _mm512_castps_pd(pairs[2 * i]), b = _mm512_castps_pd(pairs[2 * i + 1]);
    fours[i] =
        _mm512_min_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  PARE_UNROLL for (int i = 0; i < 2; ++i) halves[i] =
      _mm512_min_ps(_mm512_shuffle_f32x4(fours[2 * i], fours[2 * i + 1], 0x44),
                    _mm512_shuffle_f32x4(fours[2 * i], fours[2 * i + 1], 0xEE));
  return {_mm512_min_ps(_mm512_shuffle_f32x4(halves[0], halves[1], 0x88),
                        _mm512_shuffle_f32x4(halves[0], halves[1], 0xDD))};
#elif PARE_SIMD_LEVEL == 1
  __m256 pairs[4], fours[2];
  PARE_UNROLL for (int i = 0; i < 4; ++i) pairs[i] = _mm256_min_ps(
      _mm256_unpacklo_ps(v[2 * i].v, v[2 * i + 1].v), _mm256_unpackhi_ps(v[2 * i].v, v[2 * i + 1].v));
  PARE_UNROLL for (int i = 0; i < 2; ++i) {
    const __m256d a = _mm256_castps_pd(pairs[2 * i]), b = _mm256_castps_pd(pairs[2 * i + 1]);
    fours[i] =
        _mm256_min_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)), _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
  }
  return {_mm256_min_ps(_mm256_permute2f128_ps(fours[0], fours[1], 0x20),
                        _mm256_permute2f128_ps(fours[0], fours[1], 0x31))};
#else
  return v[0];
#endif
}

template <bool kInteger>
PARE_INLINE F32 steps(F32 quotient, F32 low, F32 high, F32 smallest, F32 magic) {
  const F32 inside = min(max(quotient, low), high);
  const F32 shift = kInteger ? magic : max(binade(inside), smallest) * magic;
  return (inside + shift) - shift;
}

// Sums of one candidate over a tile, for the lanes [v, v + F32::kLanes).
template <bool kInteger, bool kWeighted, SearchPass kPass, bool kMoments>
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
    const F32 quotient = kPass == SearchPass::kExact ? value / scale : value * inverse;
    const F32 d = steps<kInteger>(quotient, low, high, smallest, magic);
    F32 e = value, hd = d;
    if constexpr (kPass != SearchPass::kProjection) e = value - d * scale;
    F32 he = e;
    if constexpr (kWeighted) {
      const F32 weight = F32::load(h);
      if constexpr (kPass != SearchPass::kProjection) he = e * weight;
      if constexpr (kMoments) hd = d * weight;
      h += kLanes;
    }
    if constexpr (kPass != SearchPass::kProjection) ee = ee + he * e;
    if constexpr (kMoments) {
      ed = ed + hd * e;
      dd = dd + hd * d;
    }
  }
}

PARE_INLINE void add(F32 sums, double* into, bool fresh = false) {
  float lane[F32::kLanes];
  sums.store(lane);
  for (int i = 0; i < F32::kLanes; ++i) into[i] = (fresh ? 0.0 : into[i]) + static_cast<double>(lane[i]);
}

template <bool kInteger, bool kWeighted, SearchPass kPass>
void moments(const SearchTile& tile, const SearchCodec& codec, const SearchLanes* lanes, int count,
             bool fresh, SearchSums* sums) {
  for (int c = 0; c < count; ++c)
    for (int v = 0; v < kLanes; v += F32::kLanes) {
      F32 ee, ed, dd;
      one_pass<kInteger, kWeighted, kPass, true>(tile, codec, lanes[c], v, ee, ed, dd);
      if (kPass != SearchPass::kProjection) add(ee, sums[c].ee + v, fresh);
      add(ed, sums[c].ed + v, fresh);
      add(dd, sums[c].dd + v, fresh);
    }
}

template <bool kInteger, bool kWeighted>
PARE_INLINE void moments_of(const SearchTile& tile, const SearchCodec& codec, const SearchLanes* lanes,
                            int count, SearchPass pass, bool fresh, SearchSums* sums) {
  if (pass == SearchPass::kExact)
    moments<kInteger, kWeighted, SearchPass::kExact>(tile, codec, lanes, count, fresh, sums);
  else if (pass == SearchPass::kQuotient)
    moments<kInteger, kWeighted, SearchPass::kQuotient>(tile, codec, lanes, count, fresh, sums);
  else
    moments<kInteger, kWeighted, SearchPass::kProjection>(tile, codec, lanes, count, fresh, sums);
}

template <bool kInteger, bool kWeighted>
void errors_only(const SearchTile& tile, const SearchCodec& codec, const SearchLanes* lanes, int count,
                 double* errors) {
  for (int c = 0; c < count; ++c)
    for (int v = 0; v < kLanes; v += F32::kLanes) {
      F32 ee, ed, dd;
      one_pass<kInteger, kWeighted, SearchPass::kExact, false>(tile, codec, lanes[c], v, ee, ed, dd);
      add(ee, errors + c * kLanes + v);
    }
}

template <bool kProjected>
PARE_INLINE void keep(const SearchLanes& lanes, const SearchSums& sum, const double* zeros,
                      SearchKept* kept) {
  double* __restrict score0 = kept->score[0];
  double* __restrict score1 = kept->score[1];
  double* __restrict scale0 = kept->scale[0];
  double* __restrict scale1 = kept->scale[1];
  double* __restrict zero0 = kept->zero[0];
  double* __restrict zero1 = kept->zero[1];
  for (int l = 0; l < kLanes; ++l) {
    const double best = sum.ed[l] / sum.dd[l];  // 0 / 0 where all codes are 0: NaN is less than nothing
    const double z = zeros[l];
    double e = -(sum.ed[l] * best), s = best;
    if constexpr (!kProjected) {
      e += sum.ee[l];
      s += static_cast<double>(lanes.scale[l]);
    }
    const double e0 = score0[l], e1 = score1[l], s0 = scale0[l], s1 = scale1[l], z0 = zero0[l], z1 = zero1[l];
    const bool first = e < e0, second = e < e1;
    score1[l] = first ? e0 : second ? e : e1;
    scale1[l] = first ? s0 : second ? s : s1;
    zero1[l] = first ? z0 : second ? z : z1;
    score0[l] = first ? e : e0;
    scale0[l] = first ? s : s0;
    zero0[l] = first ? z : z0;
  }
  if constexpr (kProjected) return;
  double* __restrict error = kept->error;
  double* __restrict error_scale = kept->error_scale;
  double* __restrict error_zero = kept->error_zero;
  for (int l = 0; l < kLanes; ++l) {
    const double e = error[l], s = error_scale[l], z = error_zero[l];
    const bool least = sum.ee[l] < e;
    error[l] = least ? sum.ee[l] : e;
    error_scale[l] = least ? static_cast<double>(lanes.scale[l]) : s;
    error_zero[l] = least ? zeros[l] : z;
  }
}

}  // namespace

void search_sums(const SearchTile& tile, const SearchCodec& codec, const SearchLanes* lanes, int count,
                 SearchPass pass, bool fresh, SearchSums* sums) {
  if (codec.is_integer)
    (tile.h != nullptr ? moments_of<true, true> : moments_of<true, false>)(tile, codec, lanes, count, pass,
                                                                           fresh, sums);
  else
    (tile.h != nullptr ? moments_of<false, true> : moments_of<false, false>)(tile, codec, lanes, count, pass,
                                                                             fresh, sums);
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

void search_quadratic(const SearchTile& tile, const SearchCodec& codec, const SearchLanes& lanes,
                      const float* gram, float* work, SearchSums* sums) {
  const std::int64_t n = tile.rows;
  float* errors = work;
  float* counts = work + n * kLanes;
  const F32 smallest = F32::set(codec.smallest_normal), magic = F32::set(codec.magic);
  for (int v = 0; v < kLanes; v += F32::kLanes) {
    const F32 scale = F32::load(lanes.scale + v), low = F32::load(lanes.low + v),
              high = F32::load(lanes.high + v);
    for (std::int64_t i = v; i < n * kLanes; i += kLanes) {
      const F32 x = F32::load(tile.x + i), quotient = x / scale;
      const F32 d = codec.is_integer ? steps<true>(quotient, low, high, smallest, magic)
                                     : steps<false>(quotient, low, high, smallest, magic);
      d.store(counts + i);
      (x - d * scale).store(errors + i);
    }
    F32 ee = F32::zero(), ed = F32::zero(), dd = F32::zero();
    const float* g = gram + v;
    for (std::int64_t i = v; i < n * kLanes; i += kLanes) {
      F32 ge = F32::zero(), gd = F32::zero();
      for (std::int64_t j = v; j < n * kLanes; j += kLanes, g += kLanes) {
        const F32 weight = F32::load(g);
        ge = ge + weight * F32::load(errors + j);
        gd = gd + weight * F32::load(counts + j);
      }
      const F32 e = F32::load(errors + i), d = F32::load(counts + i);
      ee = ee + e * ge;
      ed = ed + d * ge;
      dd = dd + d * gd;
    }
    add(ee, sums->ee + v, true);
    add(ed, sums->ed + v, true);
    add(dd, sums->dd + v, true);
  }
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

void search_keep(const SearchLanes* lanes, const SearchSums* sums, int count, SearchPass pass,
                 const double* zeros, SearchKept* kept) {
  for (int c = 0; c < count; ++c)
    if (pass == SearchPass::kProjection)
      keep<true>(lanes[c], sums[c], zeros, kept);
    else
      keep<false>(lanes[c], sums[c], zeros, kept);
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
  std::int64_t whole = rows, i = 0;
  for (int l = 0; l < kLanes; ++l) whole = n[l] < whole ? n[l] : whole;
#if defined(__SSE2__)
  for (; i + 4 <= whole; i += 4) PARE_UNROLL for (int l = 0; l < kLanes; l += 4) {
      __m128 a = _mm_loadu_ps(lines[l] + i), b = _mm_loadu_ps(lines[l + 1] + i);
      __m128 c = _mm_loadu_ps(lines[l + 2] + i), d = _mm_loadu_ps(lines[l + 3] + i);
      _MM_TRANSPOSE4_PS(a, b, c, d);
      _mm_storeu_ps(out + i * kLanes + l, a);
      _mm_storeu_ps(out + (i + 1) * kLanes + l, b);
      _mm_storeu_ps(out + (i + 2) * kLanes + l, c);
      _mm_storeu_ps(out + (i + 3) * kLanes + l, d);
    }
#endif
  for (; i < whole; ++i)
    for (int l = 0; l < kLanes; ++l) out[i * kLanes + l] = lines[l][i];
  for (; i < rows; ++i)
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
  constexpr int kTogether = F32::kLanes;
  bool good = true;
  std::int64_t g = 0;
  // As many groups as a vector has lanes; none of them ends within one.
  for (; width % kTogether == 0 && g + kTogether <= groups; g += kTogether) {
    F32 least[kTogether], most[kTogether], odd = F32::zero();
    for (int k = 0; k < kTogether; ++k) {
      least[k] = most[k] = F32::zero();
      for (std::int64_t i = 0; i < width; i += kTogether) {
        const F32 x = F32::load(w + (g + k) * width + i);
        least[k] = min(x, least[k]);
        most[k] = min(F32::zero() - x, most[k]);
        odd = odd + (x - x);  // NaN if x is no number
      }
    }
    least_lanes(least).store(low + g);
    (F32::zero() - least_lanes(most)).store(high + g);
    good &= sum(odd) == 0;
  }
  for (; g < groups; ++g) good &= search_extremes(w + g * width, width, low + g, high + g);
  return good;
}

bool search_group_magnitudes(const float* w, std::int64_t groups, std::int64_t width, float* largest) {
  constexpr int kTogether = F32::kLanes;
  bool good = true;
  std::int64_t g = 0;
  for (; width % kTogether == 0 && g + kTogether <= groups; g += kTogether) {
    F32 least[kTogether], odd = F32::zero();  // of -|x|
    for (int k = 0; k < kTogether; ++k) {
      least[k] = F32::zero();
      for (std::int64_t i = 0; i < width; i += kTogether) {
        const F32 x = F32::load(w + (g + k) * width + i);
        least[k] = min(F32::zero() - abs(x), least[k]);
        odd = odd + (x - x);  // NaN if x is no number
      }
    }
    (F32::zero() - least_lanes(least)).store(largest + g);
    good &= sum(odd) == 0;
  }
  for (; g < groups; ++g) {
    float low = 0, high = 0;
    good &= search_extremes(w + g * width, width, &low, &high);
    largest[g] = -low > high ? -low : high;
  }
  return good;
}

void search_amax_levels(const float* __restrict magnitudes, double largest, double most, float global,
                        float* __restrict scale) {
  for (int l = 0; l < kLanes; ++l) {
    const double wanted = static_cast<double>(magnitudes[l]) / largest,
                 bounded = wanted < most ? wanted : most;
    const double level = bounded / static_cast<double>(global), above = level > 0x1p-9 ? level : 0x1p-9;
    const float rounded = nearest_e4m3(static_cast<float>(above < 448 ? above : 448)) * global;
    const float size = rounded < 0 ? -rounded : rounded;
    const bool keep = size >= 0x1p-126f && size <= 0x1.fffffep127f && magnitudes[l] != 0;
    scale[l] = keep ? rounded : global;
  }
}

}  // namespace pare::PARE_SIMD
