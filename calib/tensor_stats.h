// What calibration remembers of one tensor: a two-sided histogram of magnitudes, extremes, counts.
//
//   positive[b]  values x > 0 with  b * 2^exponent <= x < (b + 1) * 2^exponent
//   negative[b]  values x < 0 with  b * 2^exponent <= -x < (b + 1) * 2^exponent
//
// The width is a power of two and a function of nothing but the largest magnitude: the narrowest with which
// it has a bin, so it falls into the upper half of the 4,096. A wider histogram is made by adding neighbours,
// exactly what would have been counted with that width from the start. Therefore the statistics of a set of
// values are the same bits for any order, batches, threads, and however parts were merged.
//
// Zeros (of both signs), NaN and infinities are counted apart and in no bin. Values below 2^-126 have no bins
// of their own: the narrowest width is 2^-126.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pare {

inline constexpr int kBins = 4096;
inline constexpr int kChannelBins = 128;  // a side, of one channel
inline constexpr int kNarrowest = -126;   // exponent of the narrowest width
inline constexpr int kWidest = 116;       // 4096 * 2^116 = 2^128 is above every float32

// The exponent of the width for a largest magnitude (finite, >= 0): the narrowest with which it falls into
// one of `bins` (a power of two).
int width_exponent(float largest, int bins = kBins);

// All but the bins.
struct ValueCounts {
  float min = 0, max = 0;  // of the finite values, exact, zero as +0; 0 when there are none
  std::uint64_t total = 0, zeros = 0, nan = 0, positive_inf = 0, negative_inf = 0;

  std::uint64_t finite() const { return total - nan - positive_inf - negative_inf; }
  bool seen() const { return total > 0; }
  float amax() const;  // max(|min|, |max|)
  void add(const ValueCounts& part);

  friend bool operator==(const ValueCounts&, const ValueCounts&) = default;
};

// The same for one channel, with fewer bins: 2 KB each.
struct ChannelStats : ValueCounts {
  int exponent = kNarrowest;
  std::vector<std::uint64_t> bins = std::vector<std::uint64_t>(2 * kChannelBins);  // positive, then negative

  friend bool operator==(const ChannelStats&, const ChannelStats&) = default;
};

struct TensorStats : ValueCounts {
  std::string name;
  int exponent = kNarrowest;
  std::vector<std::uint64_t> bins = std::vector<std::uint64_t>(2 * kBins);  // positive, then negative
  std::vector<float> channel_amax;     // largest finite magnitude a channel; empty unless it was asked for
  std::vector<ChannelStats> channels;  // a histogram a channel; empty unless it was asked for

  const std::uint64_t* positive() const { return bins.data(); }
  const std::uint64_t* negative() const { return bins.data() + kBins; }
  double width() const;  // 2^exponent

  friend bool operator==(const TensorStats&, const TensorStats&) = default;
};

// Makes the bins wider, to an exponent not below the present one.
void widen(TensorStats& stats, int exponent);
void widen(ChannelStats& stats, int exponent);

// One channel's histogram as that of a tensor of its own, so that every method of ranges.h takes it: each bin
// is spread evenly over 32 (the rest of the division over the first ones), up to the extreme. The name is
// "NAME[channel]".
TensorStats channel_stats(const TensorStats& stats, std::size_t channel);

// Adds what another part of the data gave for the same tensor. Exact and commutative.
// Error kUsage naming the tensor when the channels differ in number.
void merge(TensorStats& into, const TensorStats& part);

}  // namespace pare
