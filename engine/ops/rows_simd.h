// Sums over a row of floats with the same bits in every instruction class. For *_simd.cpp files.
//
// Element i goes to lane i mod 16, whatever the width of the vectors: one AVX-512 register, two of AVX2 or
// sixteen numbers. The sixteen sums are then added in pairs: lane k and k + 8, k + 4, k + 2, k + 1.
#pragma once

#include "engine/ops/simd.h"

namespace pare::PARE_SIMD {

inline constexpr int kSumLanes = 16;

// term(i, k): the terms of elements i .. i+k-1 in the first k lanes, 0 in the others.
template <typename Term>
PARE_INLINE float row_sum(std::int64_t n, Term term) {
  constexpr int kParts = kSumLanes / F32::kLanes;
  F32 sums[kParts];
  PARE_UNROLL
  for (int p = 0; p < kParts; ++p) sums[p] = F32::zero();
  std::int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    PARE_UNROLL
    for (int p = 0; p < kParts; ++p) sums[p] = sums[p] + term(i + p * F32::kLanes, F32::kLanes);
  }
  for (int p = 0; p < kParts; ++p) {
    const std::int64_t left = n - i - p * F32::kLanes;
    if (left > 0)
      sums[p] =
          sums[p] + term(i + p * F32::kLanes, left < F32::kLanes ? static_cast<int>(left) : F32::kLanes);
  }
  float lanes[kSumLanes];
  for (int p = 0; p < kParts; ++p) sums[p].store(lanes + p * F32::kLanes);
  for (int width = kSumLanes / 2; width > 0; width /= 2)
    for (int k = 0; k < width; ++k) lanes[k] += lanes[k + width];
  return lanes[0];
}

// The largest of n > 0 numbers; NaN may be skipped or win.
PARE_INLINE float row_max(const float* x, std::int64_t n) {
  F32 best = F32::set(x[0]);
  std::int64_t i = 0;
  for (; i + F32::kLanes <= n; i += F32::kLanes) best = max(best, F32::load(x + i));
  float lanes[F32::kLanes];
  best.store(lanes);
  float all = lanes[0];
  for (int k = 1; k < F32::kLanes; ++k) all = all > lanes[k] ? all : lanes[k];
  for (; i < n; ++i) all = all > x[i] ? all : x[i];
  return all;
}

}  // namespace pare::PARE_SIMD
