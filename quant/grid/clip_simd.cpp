#include "quant/grid/clip_simd.h"

namespace pare::PARE_SIMD {
namespace {

constexpr int kVectors = 4, kSums = 8;
constexpr std::int64_t kWide = kVectors * F32::kLanes;

// Rounds to the nearest whole number, ties to even, where |x| <= 2^22; beyond that no code is left.
PARE_INLINE F32 nearest(F32 x) {
  const F32 shift = F32::set(0x1.8p23f);
  return (x + shift) - shift;
}

// Columns i to i + left of d_t G for kRows rows of d, and their share of the losses.
template <int kRows>
PARE_INLINE void add_columns(const float* d, std::int64_t n, const float* g, std::int64_t stride,
                             std::int64_t i, std::int64_t left, double (*sums)[kSums]) {
  F32 product[kRows][kVectors];
  PARE_UNROLL
  for (int t = 0; t < kRows; ++t) {
    PARE_UNROLL
    for (int v = 0; v < kVectors; ++v) product[t][v] = F32::zero();
  }
  for (std::int64_t j = 0; j < n; ++j) {
    const float* row = g + j * stride + i;
    F32 part[kVectors];
    PARE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t rest = left - v * F32::kLanes;
      part[v] = left == kWide ? F32::load(row + v * F32::kLanes)
                : rest <= 0   ? F32::zero()
                              : F32::load(row + v * F32::kLanes,
                                          static_cast<int>(rest < F32::kLanes ? rest : F32::kLanes));
    }
    PARE_UNROLL
    for (int t = 0; t < kRows; ++t) {
      const F32 factor = F32::set(d[t * n + j]);
      PARE_UNROLL
      for (int v = 0; v < kVectors; ++v) product[t][v] = fma(factor, part[v], product[t][v]);
    }
  }
  float values[kWide];
  for (int t = 0; t < kRows; ++t) {
    PARE_UNROLL
    for (int v = 0; v < kVectors; ++v) product[t][v].store(values + v * F32::kLanes);
    for (std::int64_t k = 0; k < left; ++k)
      sums[t][(i + k) % kSums] += static_cast<double>(values[k]) * static_cast<double>(d[t * n + i + k]);
  }
}

template <int kRows>
PARE_INLINE void losses_of(const float* d, std::int64_t n, const float* g, std::int64_t stride,
                           double* losses) {
  double sums[kRows][kSums] = {};
  std::int64_t i = 0;
  for (; i + kWide <= n; i += kWide) add_columns<kRows>(d, n, g, stride, i, kWide, sums);
  if (i < n) add_columns<kRows>(d, n, g, stride, i, n - i, sums);
  for (int t = 0; t < kRows; ++t) {
    losses[t] = 0;
    for (const double sum : sums[t]) losses[t] += sum;
  }
}

}  // namespace

void clip_errors(const float* w, std::int64_t n, float scale, float low, float high, float* error) {
  const F32 s = F32::set(scale), least = F32::set(low), most = F32::set(high);
  const auto one = [&](F32 x) {
    // Clamped first, so that rounding sees small numbers: codes are whole, so the order is the same.
    return nearest(max(least, min(most, x / s))) * s - x;
  };
  std::int64_t i = 0;
  for (; i + F32::kLanes <= n; i += F32::kLanes) one(F32::load(w + i)).store(error + i);
  if (i < n) one(F32::load(w + i, static_cast<int>(n - i))).store(error + i, static_cast<int>(n - i));
}

void clip_losses(const float* d, std::int64_t count, std::int64_t n, const float* g, std::int64_t stride,
                 double* losses) {
  std::int64_t t = 0;
  for (; t + 2 <= count; t += 2) losses_of<2>(d + t * n, n, g, stride, losses + t);
  if (t < count) losses_of<1>(d + t * n, n, g, stride, losses + t);
}

}  // namespace pare::PARE_SIMD
