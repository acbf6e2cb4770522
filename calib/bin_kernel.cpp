#include "calib/bin_kernel.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "calib/bin_kernel_simd.h"

namespace pare {

namespace {

BlockSummary summarize(const float* values, std::int64_t n) {
  BlockSummary s;
  s.min = s.max = values[0];
  for (std::int64_t i = 0; i < n; ++i) {
    s.largest = std::max(s.largest, std::bit_cast<std::uint32_t>(values[i]) & 0x7FFFFFFFu);
    s.min = std::min(s.min, values[i]);
    s.max = std::max(s.max, values[i]);
    s.zeros += values[i] == 0;
  }
  s.min += 0.0f;  // -0 becomes +0
  s.max += 0.0f;
  return s;
}

std::int64_t list_bins(const float* values, std::int64_t n, float scale, std::uint16_t* list) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (values[i] == 0) continue;
    const int bin = static_cast<int>(std::abs(values[i]) * scale);
    list[count++] = static_cast<std::uint16_t>(bin + (values[i] < 0 ? 4096 : 0));
  }
  return count;
}

constexpr BinKernel kScalar{"scalar", summarize, list_bins};

}  // namespace

const BinKernel& bin_kernel(Isa isa) {
  if (isa >= Isa::kAvx512) return bin_kernel_avx512();
  if (isa >= Isa::kAvx2) return bin_kernel_avx2();
  return kScalar;
}

void count_bins(const std::uint16_t* list, std::int64_t n, std::uint32_t* counters) {
  std::uint32_t *a = counters, *b = a + kSides, *c = b + kSides, *d = c + kSides;
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    ++a[list[i]];
    ++b[list[i + 1]];
    ++c[list[i + 2]];
    ++d[list[i + 3]];
  }
  for (; i < n; ++i) ++a[list[i]];
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
