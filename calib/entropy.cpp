#include "calib/entropy.h"

#include <bit>
#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "engine/base/isa.h"

namespace pare {

namespace {

// ln(m * 2^e) = e ln 2 + 2 atanh((m - 1) / (m + 1)) with m in [sqrt 1/2, sqrt 2): the argument of the series
// is below 0.1716, so its term of power 21 is below 1e-17. Plain operations without branches, so that the
// compiler makes vectors of the loop; none is contracted, so all classes round alike.
__attribute__((always_inline)) inline void log_loop(const double* __restrict x, double* __restrict out,
                                                    int n) {
  constexpr std::uint64_t kHalfRoot = 0x3FE6A09E667F3BCD;  // sqrt(1/2)
  constexpr double kLn2 = 0.693147180559945309417;
  for (int i = 0; i < n; ++i) {
    const std::uint64_t shifted = std::bit_cast<std::uint64_t>(x[i]) - kHalfRoot;
    // The exponent as a double without an integer conversion, which AVX2 has not: 2^52 + (e + 1024) - ...
    const std::uint64_t biased = (shifted + (std::uint64_t{1024} << 52)) >> 52;
    const double e = std::bit_cast<double>(biased | 0x4330000000000000u) - (0x1p52 + 1024);
    const std::uint64_t mantissa = (shifted & 0x000FFFFFFFFFFFFFu) + kHalfRoot;
    const double m = std::bit_cast<double>(mantissa);
    const double s = (m - 1) / (m + 1), q = s * s;
    double series = 1.0 / 19;
    series = series * q + 1.0 / 17;
    series = series * q + 1.0 / 15;
    series = series * q + 1.0 / 13;
    series = series * q + 1.0 / 11;
    series = series * q + 1.0 / 9;
    series = series * q + 1.0 / 7;
    series = series * q + 1.0 / 5;
    series = series * q + 1.0 / 3;
    series = series * q * s;
    out[i] = e * kLn2 + (2 * s + 2 * series);
  }
}

__attribute__((target("avx2"))) void log_avx2(const double* x, double* out, int n) { log_loop(x, out, n); }
__attribute__((target("avx512f,avx512dq,avx512vl"))) void log_avx512(const double* x, double* out, int n) {
  log_loop(x, out, n);
}

double times_log(double count) {
  if (count <= 0) return 0;
  double log;
  natural_logs(&count, &log, 1);
  return count * log;
}

}  // namespace

void natural_logs(const double* x, double* out, int n) {
  if (isa() >= Isa::kAvx512) return log_avx512(x, out, n);
  if (isa() >= Isa::kAvx2) return log_avx2(x, out, n);
  log_loop(x, out, n);
}

// C KL(i) = sum P ln P - sum over levels of (counts of P in the level) ln(level sum / bins in use), and then
// - C ln C + C ln S, with C all counts and S those below i: prefix sums leave one logarithm a level.
EntropyResult search_entropy(const std::vector<double>& counts, int levels) {
  PARE_ASSERT(levels >= 1 && levels <= kMaxLevels);
  const int n = static_cast<int>(counts.size());
  if (n < levels) return {n, 0, 1};
  std::vector<double> sum(counts.size() + 1), sum_log(counts.size() + 1);
  std::vector<std::int32_t> used(counts.size() + 1);
  for (std::size_t b = 0; b < counts.size(); ++b) {
    sum[b + 1] = sum[b] + counts[b];
    used[b + 1] = used[b] + (counts[b] > 0);
    sum_log[b + 1] = sum_log[b] + times_log(counts[b]);
  }
  const double all = sum.back();
  double log_all;
  natural_logs(&all, &log_all, 1);

  EntropyResult best{n, std::numeric_limits<double>::infinity(), 0};
  alignas(64) double level[kMaxLevels], share[kMaxLevels], logs[kMaxLevels];
  for (int i = levels; i <= n; ++i, ++best.candidates) {
    const auto last = static_cast<std::size_t>(i) - 1;
    const double inside = sum[last + 1], tail = all - inside;
    if (inside <= 0) continue;
    double from_sum = 0;
    std::int32_t from_used = 0;
    for (int k = 0; k < levels; ++k) {
      // The first bin j of level k + 1: 128 j / i >= k + 1.
      const auto to = static_cast<std::size_t>(((k + 1) * i + levels - 1) / levels);
      level[k] = sum[to] - from_sum;
      std::int32_t in_use = used[to] - from_used;
      if (k + 1 == levels && tail > 0 && counts[last] == 0) ++in_use;  // P is not 0 there
      share[k] = level[k] > 0 ? level[k] / in_use : 1.0;
      from_sum = sum[to];
      from_used = used[to];
    }
    if (tail > 0 && level[levels - 1] <= 0) continue;  // Q = 0 where P > 0
    natural_logs(share, logs, levels);
    double lanes[8] = {};
    for (int k = 0; k < levels; ++k) lanes[k % 8] += level[k] * logs[k];
    double cross =
        ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
    cross += tail * logs[levels - 1];
    const double own = sum_log[last] + times_log(counts[last] + tail);
    double log_inside;
    natural_logs(&inside, &log_inside, 1);
    const double divergence = (own - cross) / all - log_all + log_inside;
    if (divergence <= best.divergence) {
      best.divergence = divergence;
      best.bins = i;
    }
  }
  return best;
}

}  // namespace pare
