#include "calib/tensor_stats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "engine/base/error.h"

namespace pare {

int width_exponent(float largest, int bins) {
  const auto code = std::bit_cast<std::uint32_t>(largest);
  PARE_ASSERT(code < 0x7F800000u);
  // 2^e <= largest < 2^(e+1) needs bins * width >= 2^(e+1).
  const int e = static_cast<int>(code >> 23) - 127;
  return std::max(e + 1 - std::countr_zero(static_cast<unsigned>(bins)), kNarrowest);
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

void widen_bins(std::uint64_t* both, int count, int steps) {
  if (steps == 0) return;
  for (std::uint64_t* bins : {both, both + count})
    for (int b = 1; b < count; ++b) {  // bin 0 stays where it is; others move down, into places already left
      const std::uint64_t value = bins[b];
      bins[b] = 0;
      bins[wider_bin(b, steps)] += value;
    }
}

void add_bins(std::uint64_t* into, const std::uint64_t* part, int count, int steps) {
  for (int side = 0; side < 2; ++side)
    for (int b = 0; b < count; ++b)
      into[static_cast<std::size_t>(side * count) + wider_bin(b, steps)] += part[side * count + b];
}

void merge_channels(TensorStats& into, const TensorStats& part) {
  if (part.channels.empty()) return;
  if (into.channels.empty()) into.channels.resize(part.channels.size());
  for (std::size_t c = 0; c < part.channels.size(); ++c) {
    ChannelStats& to = into.channels[c];
    const ChannelStats& from = part.channels[c];
    to.add(from);
    widen(to, std::max(to.exponent, from.exponent));
    add_bins(to.bins.data(), from.bins.data(), kChannelBins, to.exponent - from.exponent);
  }
}

}  // namespace

void widen(TensorStats& stats, int exponent) {
  PARE_ASSERT(exponent >= stats.exponent && exponent <= kWidest);
  widen_bins(stats.bins.data(), kBins, exponent - stats.exponent);
  stats.exponent = exponent;
}

void widen(ChannelStats& stats, int exponent) {
  PARE_ASSERT(exponent >= stats.exponent);
  widen_bins(stats.bins.data(), kChannelBins, exponent - stats.exponent);
  stats.exponent = exponent;
}

TensorStats channel_stats(const TensorStats& stats, std::size_t channel) {
  const ChannelStats& from = stats.channels[channel];
  TensorStats to;
  static_cast<ValueCounts&>(to) = from;
  to.name = fmt::format("{}[{}]", stats.name, channel);
  to.exponent = width_exponent(from.amax());
  // The channel's bins are 32 of the tensor's wide, except where both are as narrow as there is.
  const int parts = 1 << std::min(from.exponent - to.exponent, 5);
  for (int side = 0; side < 2; ++side) {
    const double extreme = side == 0 ? std::max(0.0, static_cast<double>(from.max))
                                     : std::max(0.0, -static_cast<double>(from.min));
    const int last = std::min(kBins - 1, static_cast<int>(std::ldexp(extreme, -to.exponent)));
    for (int b = 0; b < kChannelBins; ++b) {
      const std::uint64_t count = from.bins[static_cast<std::size_t>(side * kChannelBins + b)];
      if (count == 0) continue;
      const int first = b * parts, end = std::max(first + 1, std::min(last + 1, first + parts));
      const auto n = static_cast<std::uint64_t>(end - first);
      for (int i = first; i < end; ++i)
        to.bins[static_cast<std::size_t>(side * kBins + i)] +=
            count / n + (static_cast<std::uint64_t>(i - first) < count % n ? 1 : 0);
    }
  }
  return to;
}

void merge(TensorStats& into, const TensorStats& part) {
  const bool both = into.seen() && part.seen();
  if (both && into.channels.size() != part.channels.size())
    throw make_error(ErrorCode::kUsage, "'{}' has {} channel histograms in one part and {} in the other",
                     into.name, into.channels.size(), part.channels.size())
        .hint("parts to be merged come from the same model with the same options");
  if (into.channel_amax.size() != part.channel_amax.size()) {
    if (both)
      throw make_error(ErrorCode::kUsage, "'{}' has {} channels in one part and {} in the other", into.name,
                       into.channel_amax.size(), part.channel_amax.size())
          .hint("parts to be merged come from the same model with the same options");
    into.channel_amax.resize(std::max(into.channel_amax.size(), part.channel_amax.size()));
  }
  for (std::size_t c = 0; c < part.channel_amax.size(); ++c)
    into.channel_amax[c] = std::max(into.channel_amax[c], part.channel_amax[c]);
  merge_channels(into, part);
  into.add(part);
  widen(into, std::max(into.exponent, part.exponent));
  add_bins(into.bins.data(), part.bins.data(), kBins, into.exponent - part.exponent);
}

}  // namespace pare
