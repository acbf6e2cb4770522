#include "calib/gram_simd.h"

namespace pare::PARE_SIMD {

void gram_small(const float* x, std::int64_t k, std::int64_t width, std::int64_t n, std::int64_t step,
                std::int64_t lanes, double* sums, std::int64_t sums_stride) {
  for (std::int64_t first = 0; first < lanes; first += F32::kLanes) {
    const int count = static_cast<int>(lanes - first < F32::kLanes ? lanes - first : F32::kLanes);
    double* out = sums + first * sums_stride;
    for (std::int64_t i = 0; i < n; ++i) {
      const float* left = x + i * step + first;
      // Four columns share what is loaded of the row.
      for (std::int64_t j = i; j < n; j += 4) {
        constexpr int kTogether = 4;
        F32 acc[kTogether];
        PARE_UNROLL for (int t = 0; t < kTogether; ++t) acc[t] = F32::zero();
        const std::int64_t last = n - 1;
        const float* right[kTogether];
        PARE_UNROLL for (int t = 0; t < kTogether; ++t) right[t] =
            x + (j + t < last ? j + t : last) * step + first;
        for (std::int64_t p = 0; p < k; ++p) {
          const F32 l = F32::load(left + p * width, count);
          PARE_UNROLL for (int t = 0; t < kTogether; ++t) acc[t] =
              fma(l, F32::load(right[t] + p * width, count), acc[t]);
        }
        for (int t = 0; t < kTogether && j + t < n; ++t) {
          float lane[F32::kLanes];
          acc[t].store(lane);
          const std::int64_t at = i * n - i * (i - 1) / 2 + j + t - i;
          for (int g = 0; g < count; ++g) out[g * sums_stride + at] += static_cast<double>(lane[g]);
        }
      }
    }
  }
}

}  // namespace pare::PARE_SIMD
