#include "engine/ops/axis/softmax.h"

#include "engine/ops/rows_simd.h"
#include "engine/ops/vector_math.h"

namespace pare::PARE_SIMD {

void softmax_rows(const float* x, float* y, std::int64_t rows, std::int64_t n, bool logarithm) {
  for (std::int64_t r = 0; r < rows; ++r, x += n, y += n) {
    const F32 largest = F32::set(row_max(x, n));
    if (logarithm) {
      const float sum = row_sum(n, [&](std::int64_t i, int k) {
        const F32 e = exp(F32::load(x + i, k) - largest);
        if (k == F32::kLanes) return e;
        float lanes[F32::kLanes] = {};
        e.store(lanes, k);  // the lanes behind the row hold exp(-largest)
        return F32::load(lanes);
      });
      const F32 shift = F32::set(std::log(sum));
      transform(x, y, n, [=](F32 v) { return v - largest - shift; });
      continue;
    }
    const float sum = row_sum(n, [&](std::int64_t i, int k) {
      const F32 e = exp(F32::load(x + i, k) - largest);
      e.store(y + i, k);
      return k == F32::kLanes ? e : F32::load(y + i, k);
    });
    const F32 scale = F32::set(1.0f / sum);
    transform(y, y, n, [=](F32 v) { return v * scale; });
  }
}

void softmax_columns(const float* x, float* y, std::int64_t n, std::int64_t inner, std::int64_t begin,
                     std::int64_t end, bool logarithm) {
  for (std::int64_t c = begin; c < end; c += F32::kLanes) {
    const int k = end - c < F32::kLanes ? static_cast<int>(end - c) : F32::kLanes;
    F32 largest = F32::load(x + c, k);
    for (std::int64_t i = 1; i < n; ++i) largest = max(largest, F32::load(x + i * inner + c, k));
    F32 sum = F32::zero();
    for (std::int64_t i = 0; i < n; ++i) {
      const F32 e = exp(F32::load(x + i * inner + c, k) - largest);
      if (!logarithm) e.store(y + i * inner + c, k);
      sum = sum + e;
    }
    if (logarithm) {
      float lanes[F32::kLanes];
      sum.store(lanes);
      for (float& lane : lanes) lane = std::log(lane);
      const F32 shift = F32::load(lanes);
      for (std::int64_t i = 0; i < n; ++i)
        (F32::load(x + i * inner + c, k) - largest - shift).store(y + i * inner + c, k);
    } else {
      const F32 scale = F32::set(1.0f) / sum;
      for (std::int64_t i = 0; i < n; ++i)
        (F32::load(y + i * inner + c, k) * scale).store(y + i * inner + c, k);
    }
  }
}

}  // namespace pare::PARE_SIMD
