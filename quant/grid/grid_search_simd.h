// Internal to quant: the inner loops of grid_search.cpp, compiled once for every instruction class.
//
// A tile is x[n][kSearchLanes]: lane l is a group (or every 16th weight of a long one) with a scale of its
// own. Sums run down a lane in order, in float32 within a tile and in double over tiles, and no operation
// joins two lanes, so every class has the same bits. Products are not fused into sums (-ffp-contract=off).
#pragma once

#include <cstdint>

#include "engine/ops/simd.h"

namespace pare {

inline constexpr int kSearchLanes = 16;
inline constexpr std::int64_t kTileRows = 128;  // float32 sums are no longer than this

struct SearchTile {
  const float* x;     // [rows][16]
  const float* h;     // importance, [rows][16], or nullptr: 1
  std::int64_t rows;  // at most kTileRows
};

// How a quotient becomes a number of steps: rounded to a multiple of 1 (integers), or of the step of its
// binade (floats), after it was clamped.
struct SearchCodec {
  bool is_integer = true;
  float smallest_normal = 0;  // floats: 2^-6 for E4M3
  float magic = 0;            // 1.5 * 2^23; floats: 1.5 * 2^(23 - mantissa bits), times the binade
};

// One candidate: kSearchLanes scales, and the least and the largest number of steps.
struct SearchLanes {
  alignas(64) float scale[kSearchLanes];
  alignas(64) float low[kSearchLanes], high[kSearchLanes];
};

// With d = steps(x / scale) and e = x - d * scale:
struct SearchSums {
  alignas(64) double ee[kSearchLanes];  // sum of h e e
  alignas(64) double ed[kSearchLanes];  // sum of h e d; of a projection: of h x d
  alignas(64) double dd[kSearchLanes];  // sum of h d d
};
enum class SearchPass {
  kExact,      // a true division, as encode() does
  kQuotient,   // a product with 1 / scale
  kProjection  // the same without ee, which is then the power of x less ed^2 / dd: good for few bits, as the
               // difference of numbers that are not much larger than it
};

// sums[0, count), added to them unless `fresh`.
PARE_SIMD_DECLARE(void search_sums(const SearchTile& tile, const SearchCodec& codec, const SearchLanes* lanes,
                                   int count, SearchPass pass, bool fresh, SearchSums* sums))
// Only ee, exact: errors[count][16].
PARE_SIMD_DECLARE(void search_errors(const SearchTile& tile, const SearchCodec& codec,
                                     const SearchLanes* lanes, int count, double* errors))
// The same of one candidate and a whole group with products e^T G e, e^T G d, d^T G d for ee, ed, dd. Exact.
// gram is [rows][rows][16]; work has room for 2 * rows * 16.
PARE_SIMD_DECLARE(void search_quadratic(const SearchTile& tile, const SearchCodec& codec,
                                        const SearchLanes& lanes, const float* gram, float* work,
                                        SearchSums* sums))
// errors[16] += sum of h * max(|x| - edge, 0)^2.
PARE_SIMD_DECLARE(void search_clipped(const SearchTile& tile, const float* edge, double* errors))

// power[16] += sum of h x x, sum[16] += sum of h x, weight[16] += sum of h.
PARE_SIMD_DECLARE(void search_moments(const SearchTile& tile, double* power, double* sum, double* weight))

// The two candidates of least ee - ed^2 / dd in each lane: the error that the least-squares scale of a
// candidate's codes would have.
struct SearchKept {
  static constexpr int kCount = 2;
  alignas(64) double score[kCount][kSearchLanes];
  alignas(64) double scale[kCount][kSearchLanes];  // least squares, not rounded
  alignas(64) double zero[kCount][kSearchLanes];
  // And the one of least ee.
  alignas(64) double error[kSearchLanes], error_scale[kSearchLanes], error_zero[kSearchLanes];
};
// Of projections only the order of the scores counts, and `error` is left alone.
PARE_SIMD_DECLARE(void search_keep(const SearchLanes* lanes, const SearchSums* sums, int count,
                                   SearchPass pass, const double* zeros, SearchKept* kept))

// scales[16] * back[16] in the type that is written, widened; `instead` where that is 0, denormal or above
// `limit` (a finite number), or negative and `positive` is set.
enum class SearchRound { kF32, kF16, kBF16 };
PARE_SIMD_DECLARE(void search_round(SearchRound type, bool positive, float limit, const double* scales,
                                    const double* back, const float* instead, float* rounded))

// out[i][l] = lines[l][i] for i < n[l], else 0, for i < rows.
PARE_SIMD_DECLARE(void search_gather(const float* const* lines, const std::int64_t* n, std::int64_t rows,
                                     float* out))
// Extremes of each lane of x[rows][16], extended to hold 0. False, and the extremes undefined, if a value is
// NaN or infinite.
PARE_SIMD_DECLARE(bool search_lane_extremes(const float* x, std::int64_t rows, float* low, float* high))
// x[i][l] *= factors[l].
PARE_SIMD_DECLARE(void search_scale_lanes(float* x, std::int64_t rows, const float* factors))
// out[i] = in[i] * factor.
PARE_SIMD_DECLARE(void search_scale(const float* in, float factor, std::int64_t n, float* out))

// Extremes of each of `groups` groups of `width` weights, one after the other, extended to hold 0. False, and
// the extremes undefined, if one is NaN or infinite.
PARE_SIMD_DECLARE(bool search_group_extremes(const float* w, std::int64_t groups, std::int64_t width,
                                             float* low, float* high))
// Extremes of w[0, n), extended to hold 0. False, and the extremes undefined, if one is NaN or infinite.
// The same of the largest magnitude, all that symmetric formats ask for: half the work.
PARE_SIMD_DECLARE(bool search_group_magnitudes(const float* w, std::int64_t groups, std::int64_t width,
                                               float* largest))
// Two-level scales of the rule of the largest magnitude: scale[l] = nearest_e4m3(m / largest / global) *
// global of each of kSearchLanes magnitudes m, each step but the level in double, the level within [2^-9,
// 448]; `most` bounds m / largest. `global` where m is 0 or the scale no normal number.
PARE_SIMD_DECLARE(void search_amax_levels(const float* magnitudes, double largest, double most, float global,
                                          float* scale))
PARE_SIMD_DECLARE(bool search_extremes(const float* w, std::int64_t n, float* low, float* high))

}  // namespace pare
