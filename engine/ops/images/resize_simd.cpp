#include "engine/ops/images/resize.h"

namespace pare::PARE_SIMD {
namespace {

// One pass over the output for up to four taps.
template <int kTaps>
void sum_taps(const float* x, std::int64_t n, const std::int64_t* places, const float* weights, float* y) {
  const float* rows[kTaps];
  F32 factors[kTaps];
  for (int t = 0; t < kTaps; ++t) {
    rows[t] = x + places[t] * n;
    factors[t] = F32::set(weights[t]);
  }
  const auto part = [&](std::int64_t i, int lanes) {
    F32 sum = F32::zero();
    PARE_UNROLL
    for (int t = 0; t < kTaps; ++t) sum = sum + factors[t] * F32::load(rows[t] + i, lanes);
    return sum;
  };
  std::int64_t i = 0;
  for (; i + F32::kLanes <= n; i += F32::kLanes) {
    F32 sum = F32::zero();
    PARE_UNROLL
    for (int t = 0; t < kTaps; ++t) sum = sum + factors[t] * F32::load(rows[t] + i);
    sum.store(y + i);
  }
  if (i < n) part(i, static_cast<int>(n - i)).store(y + i, static_cast<int>(n - i));
}

}  // namespace

void weighted_rows(const float* x, std::int64_t n, const std::int64_t* places, const float* weights, int taps,
                   float* y) {
  switch (taps) {
    case 1:
      return sum_taps<1>(x, n, places, weights, y);
    case 2:
      return sum_taps<2>(x, n, places, weights, y);
    case 3:
      return sum_taps<3>(x, n, places, weights, y);
    case 4:
      return sum_taps<4>(x, n, places, weights, y);
    default:
      break;
  }
  for (std::int64_t i = 0; i < n; ++i) y[i] = 0;
  for (int t = 0; t < taps; ++t) {
    const float* row = x + places[t] * n;
    const F32 factor = F32::set(weights[t]);
    transform2(y, row, y, n, [=](F32 sum, F32 v) { return sum + factor * v; });
  }
}

}  // namespace pare::PARE_SIMD
