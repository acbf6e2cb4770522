#include "engine/ops/images/pool.h"

namespace pare::PARE_SIMD {

void pool_row(bool largest, const float* x, std::int64_t step, float* y, std::int64_t n) {
  const auto larger = [](F32 a, F32 b) { return select(is_nan(a), a, max(a, b)); };
  if (step == 1) {
    if (largest) return transform2(y, x, y, n, larger);
    return transform2(y, x, y, n, [](F32 a, F32 b) { return a + b; });
  }
  float gathered[64];
  for (std::int64_t i = 0; i < n; i += 64) {
    const std::int64_t count = n - i < 64 ? n - i : 64;
    for (std::int64_t k = 0; k < count; ++k) gathered[k] = x[(i + k) * step];
    pool_row(largest, gathered, 1, y + i, count);
  }
}

}  // namespace pare::PARE_SIMD
