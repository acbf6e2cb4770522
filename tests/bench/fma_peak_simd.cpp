#include "tests/bench/fma_peak_simd.h"

namespace pare::PARE_SIMD {

float fma_chains(std::int64_t steps) {
  F32 sums[12];
  PARE_UNROLL for (int i = 0; i < 12; ++i) sums[i] = F32::set(static_cast<float>(i));
  const F32 a = F32::set(0.999f), b = F32::set(1e-3f);
  for (std::int64_t s = 0; s < steps; ++s) {
    PARE_UNROLL for (int i = 0; i < 12; ++i) sums[i] = fma(sums[i], a, b);
  }
  F32 total = F32::zero();
  PARE_UNROLL for (int i = 0; i < 12; ++i) total = total + sums[i];
  return sum(total);
}

int fma_lanes() { return F32::kLanes; }

}  // namespace pare::PARE_SIMD
