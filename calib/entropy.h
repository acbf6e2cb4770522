// The search of range_entropy (ranges.h), on magnitudes.
#pragma once

#include <cstdint>
#include <vector>

namespace pare {

inline constexpr int kMaxLevels = 256;

struct EntropyResult {
  int bins = 0;           // the best i; all of them when there are fewer than `levels`
  double divergence = 0;  // KL(i), natural logarithm
  std::int64_t candidates = 0;
};

// Counts of magnitudes, the last one not zero; `levels` steps of the target on one side of zero, 1 to
// kMaxLevels. Time: bins * levels logarithms.
EntropyResult search_entropy(const std::vector<double>& counts, int levels = 128);

// ln(x) for positive normal x, error below 2e-15 absolute near 1 and 1 ulp elsewhere. The same bits for all
// instruction classes, which the C library does not promise.
void natural_logs(const double* x, double* out, int n);

}  // namespace pare
