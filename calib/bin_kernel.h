// The inner loops of the collector, one set an instruction class, all equal in every bit.
//
// Values come in blocks of at most kBlock. summarize() looks at a block once; when it holds NaN or infinities
// the caller replaces them by zeros before it goes on. list_bins() turns the block into a list of bins,
// without those of zeros: half of what a ReLU gives, and incrementing one counter over and over is slow.
// count_bins() walks the list over four counter sets in turn, so that equal neighbours do not wait for each
// other.
#pragma once

#include <cstdint>

#include "engine/base/isa.h"

namespace pare {

inline constexpr std::int64_t kBlock = 4096;
inline constexpr int kSides = 2 * 4096;  // bins of positive values, then bins of negative ones
inline constexpr int kCounterSets = 4;

struct BlockSummary {
  std::uint32_t largest = 0;  // of the bit patterns without sign: 0x7F800000 and above are infinity and NaN
  float min = 0, max = 0;     // meaningless when largest >= 0x7F800000
  std::int64_t zeros = 0;     // of both signs
};

struct BinKernel {
  const char* name;
  // n >= 1.
  BlockSummary (*summarize)(const float* values, std::int64_t n);
  // `scale` is 2^-exponent; every |value| * scale is below 4096. Writes int(|x| * scale), plus 4096 for
  // negative values, for each value that is not zero; returns how many. `list` has room for n + 32.
  std::int64_t (*list_bins)(const float* values, std::int64_t n, float scale, std::uint16_t* list);
};

const BinKernel& bin_kernel(Isa isa);  // the best at or below this class

// counters: [kCounterSets][kSides]
void count_bins(const std::uint16_t* list, std::int64_t n, std::uint32_t* counters);
// For few values: straight into the histogram. bins: [kSides]
void count_bins(const std::uint16_t* list, std::int64_t n, std::uint64_t* bins);

// into[c] = max(into[c], finite magnitudes of channel c), as bit patterns. Values are [outer, channels,
// inner].
void channel_maxima(const float* values, std::int64_t outer, std::int64_t channels, std::int64_t inner,
                    std::uint32_t* into);

}  // namespace pare
