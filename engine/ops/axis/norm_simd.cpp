#include "engine/ops/axis/norm.h"
#include "engine/ops/rows_simd.h"

namespace pare::PARE_SIMD {

RowStatistics row_statistics(const float* x, std::int64_t n, float epsilon, bool centered) {
  RowStatistics s;
  const float count = static_cast<float>(n);
  if (centered) s.mean = row_sum(n, [=](std::int64_t i, int k) { return F32::load(x + i, k); }) / count;
  const F32 mean = F32::set(s.mean);
  const float squares = row_sum(n, [=](std::int64_t i, int k) {
    F32 d = F32::load(x + i, k);
    if (k == F32::kLanes) {
      d = d - mean;
    } else {  // the lanes behind the row stay 0
      float lanes[F32::kLanes] = {};
      (d - mean).store(lanes, k);
      d = F32::load(lanes);
    }
    return d * d;
  });
  s.inverse = 1.0f / std::sqrt(squares / count + epsilon);
  return s;
}

void normalize_row(const float* x, RowStatistics s, const float* scale, const float* bias, float* y,
                   std::int64_t n) {
  const F32 mean = F32::set(s.mean), inverse = F32::set(s.inverse);
  std::int64_t i = 0;
  if (bias == nullptr) {
    for (; i + F32::kLanes <= n; i += F32::kLanes)
      ((F32::load(x + i) - mean) * inverse * F32::load(scale + i)).store(y + i);
    const int k = static_cast<int>(n - i);
    if (k > 0) ((F32::load(x + i, k) - mean) * inverse * F32::load(scale + i, k)).store(y + i, k);
    return;
  }
  for (; i + F32::kLanes <= n; i += F32::kLanes)
    fma((F32::load(x + i) - mean) * inverse, F32::load(scale + i), F32::load(bias + i)).store(y + i);
  const int k = static_cast<int>(n - i);
  if (k > 0)
    fma((F32::load(x + i, k) - mean) * inverse, F32::load(scale + i, k), F32::load(bias + i, k))
        .store(y + i, k);
}

void affine_row(const float* x, float factor, float shift, float* y, std::int64_t n) {
  const F32 f = F32::set(factor), s = F32::set(shift);
  transform(x, y, n, [=](F32 v) { return fma(v, f, s); });
}

}  // namespace pare::PARE_SIMD
