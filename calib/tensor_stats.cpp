#include "calib/tensor_stats.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/base/error.h"

namespace pare {

int width_exponent(float largest) {
  const auto code = std::bit_cast<std::uint32_t>(largest);
  PARE_ASSERT(code < 0x7F800000u);
  // 2^e <= largest < 2^(e+1) needs 4096 * width >= 2^(e+1).
  const int e = static_cast<int>(code >> 23) - 127;
  return std::max(e + 1 - std::countr_zero(static_cast<unsigned>(kBins)), kNarrowest);
}

float ValueCounts::amax() const { return std::max(-min, max) + 0.0f; }  // -0 is 0

void ValueCounts::add(const ValueCounts& part) {
  if (part.finite() > 0) {
    min = finite() > 0 ? std::min(min, part.min) : part.min;
    max = finite() > 0 ? std::max(max, part.max) : part.max;
  }
  total += part.total;
  zeros += part.zeros;
  nan += part.nan;
  positive_inf += part.positive_inf;
  negative_inf += part.negative_inf;
}

double TensorStats::width() const { return std::ldexp(1.0, exponent); }

namespace {

// Where a bin goes when the width grows by 2^steps.
std::size_t wider_bin(int bin, int steps) { return static_cast<std::size_t>(steps < 31 ? bin >> steps : 0); }

}  // namespace

void widen(TensorStats& stats, int exponent) {
  PARE_ASSERT(exponent >= stats.exponent && exponent <= kWidest);
  const int steps = exponent - stats.exponent;
  stats.exponent = exponent;
  if (steps == 0) return;
  for (std::uint64_t* bins : {stats.bins.data(), stats.bins.data() + kBins})
    for (int b = 1; b < kBins; ++b) {  // bin 0 stays where it is; others move down, into places already left
      const std::uint64_t count = bins[b];
      bins[b] = 0;
      bins[wider_bin(b, steps)] += count;
    }
}

void merge(TensorStats& into, const TensorStats& part) {
  if (into.channel_amax.size() != part.channel_amax.size()) {
    if (into.seen() && part.seen())
      throw make_error(ErrorCode::kUsage, "'{}' has {} channels in one part and {} in the other", into.name,
                       into.channel_amax.size(), part.channel_amax.size())
          .hint("parts to be merged come from the same model with the same options");
    into.channel_amax.resize(std::max(into.channel_amax.size(), part.channel_amax.size()));
  }
  for (std::size_t c = 0; c < part.channel_amax.size(); ++c)
    into.channel_amax[c] = std::max(into.channel_amax[c], part.channel_amax[c]);
  into.add(part);
  widen(into, std::max(into.exponent, part.exponent));
  const int steps = into.exponent - part.exponent;
  for (int side = 0; side < 2; ++side)
    for (int b = 0; b < kBins; ++b)
      into.bins[static_cast<std::size_t>(side * kBins) + wider_bin(b, steps)] +=
          part.bins[static_cast<std::size_t>(side * kBins + b)];
}

}  // namespace pare
