#include "engine/ops/sequence/token_rows.h"

#include "engine/ops/rows_simd.h"
#include "engine/ops/vector_math.h"

namespace pare::PARE_SIMD {
namespace {

constexpr std::int64_t kPart = 512;

// The first k lanes of v, zeros behind them.
PARE_INLINE F32 first_lanes(F32 v, int k) {
  if (k == F32::kLanes) return v;
  float lanes[F32::kLanes] = {};
  v.store(lanes, k);
  return F32::load(lanes);
}

template <typename Term>
double double_sum(std::int64_t n, Term term) {
  double sum = 0;
  for (std::int64_t begin = 0; begin < n; begin += kPart) {
    const std::int64_t count = n - begin < kPart ? n - begin : kPart;
    sum += static_cast<double>(row_sum(count, [&](std::int64_t i, int k) { return term(begin + i, k); }));
  }
  return sum;
}

double exp_sum(const float* x, std::int64_t n, float largest) {
  const F32 m = F32::set(largest);
  return double_sum(n, [=](std::int64_t i, int k) { return first_lanes(exp(F32::load(x + i, k) - m), k); });
}

}  // namespace

double row_log_sum_exp(const float* x, std::int64_t n) {
  const float largest = row_max(x, n);
  return static_cast<double>(largest) + std::log(exp_sum(x, n, largest));
}

RowDistance row_distance(const float* p, const float* q, std::int64_t n) {
  const float largest = row_max(p, n);
  const F32 m = F32::set(largest);
  RowDistance distance;
  distance.largest = static_cast<double>(largest);
  distance.weight = exp_sum(p, n, largest);
  distance.sum = double_sum(n, [=](std::int64_t i, int k) {
    const F32 a = F32::load(p + i, k);
    return first_lanes(exp(a - m) * (a - F32::load(q + i, k)), k);
  });
  return distance;
}

}  // namespace pare::PARE_SIMD
