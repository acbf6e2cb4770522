// The inner loops of the collector, one set an instruction class, all equal in every bit.
//
// Values come in blocks of at most kBlock. scan() looks at each value once: extremes, and a list of bins for
// the width that was enough so far, without those of zeros (half of what a ReLU gives). If the block turns
// out to hold larger values, or NaN or infinities, its list is worth nothing and the caller looks again.
// count_bins() walks the list over two counter sets in turn, so that on processors where a load waits for the
// store before it equal neighbours do not wait for each other.
#pragma once

#include <cstdint>

#include "engine/base/isa.h"

namespace pare {

inline constexpr std::int64_t kBlock = 4096;
inline constexpr int kSides = 2 * 4096;  // bins of positive values, then bins of negative ones
inline constexpr int kCounterSets = 2;

struct BlockScan {
  std::uint32_t largest = 0;  // of the bit patterns without sign: 0x7F800000 and above are infinity and NaN
  float min = 0, max = 0;     // zero as +0; meaningless when largest >= 0x7F800000
  std::int64_t listed = 0;    // values that are not zero
};

struct BinKernel {
  const char* name;
  // n >= 1; `scale` is 2^-exponent. Writes int(|x| * scale), plus 4096 for negative values, for each value
  // that is not zero, provided that largest * scale < 4096; otherwise the list is undefined. It has room for
  // n + 32.
  BlockScan (*scan)(const float* values, std::int64_t n, float scale, std::uint16_t* list);
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
