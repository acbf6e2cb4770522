#include "calib/bin_kernel.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "calib/bin_kernel_simd.h"

namespace pare {

namespace {

BlockScan scan(const float* values, std::int64_t n, float scale, std::uint16_t* list) {
  BlockScan s;
  s.min = s.max = values[0];
  for (std::int64_t i = 0; i < n; ++i) {
    const float x = values[i], scaled = std::abs(x) * scale;
    s.largest = std::max(s.largest, std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu);
    s.min = std::min(s.min, x);
    s.max = std::max(s.max, x);
    if (x == 0) continue;
    const int bin = scaled < 4096 ? static_cast<int>(scaled) : 0;
    list[s.listed++] = static_cast<std::uint16_t>(bin + (x < 0 ? 4096 : 0));
  }
  s.min += 0.0f;  // -0 becomes +0
  s.max += 0.0f;
  return s;
}

constexpr BinKernel kScalar{"scalar", scan};

}  // namespace

const BinKernel& bin_kernel(Isa isa) {
  if (isa >= Isa::kAvx512) return bin_kernel_avx512();
  if (isa >= Isa::kAvx2) return bin_kernel_avx2();
  return kScalar;
}

void count_bins(const std::uint16_t* list, std::int64_t n, std::uint32_t* counters) {
  static_assert(kCounterSets == 2);
  std::uint32_t* other = counters + kSides;
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    ++counters[list[i]];
    ++other[list[i + 1]];
    ++counters[list[i + 2]];
    ++other[list[i + 3]];
  }
  for (; i < n; ++i) ++counters[list[i]];
}

void count_bins(const std::uint16_t* list, std::int64_t n, std::uint64_t* bins) {
  for (std::int64_t i = 0; i < n; ++i) ++bins[list[i]];
}

void channel_maxima(const float* values, std::int64_t outer, std::int64_t channels, std::int64_t inner,
                    std::uint32_t* into) {
  const auto magnitude = [](float value) {
    const std::uint32_t code = std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFu;
    return code < 0x7F800000u ? code : 0u;
  };
  for (std::int64_t o = 0; o < outer; ++o) {
    if (inner == 1) {
      for (std::int64_t c = 0; c < channels; ++c) into[c] = std::max(into[c], magnitude(values[c]));
      values += channels;
      continue;
    }
    for (std::int64_t c = 0; c < channels; ++c, values += inner) {
      std::uint32_t largest = 0;
      for (std::int64_t i = 0; i < inner; ++i) largest = std::max(largest, magnitude(values[i]));
      into[c] = std::max(into[c], largest);
    }
  }
}

}  // namespace pare
