// From the statistics of one tensor to the range that its codes shall cover, by every method, each with the
// error to expect. Nothing here looks at data again.
//
// The model of the data: inside a bin values are spread evenly (the outermost bin of a side ends at the
// extreme value), zeros are zeros. Expected errors are integrals over that, without sampling.
//
//   symmetric    low = -high, scale = high /
//                symmetric_largest (127 for int8 and uint8, 32,767 for int16, 7 for
//                int4, 448 for E4M3, 57,344 for E5M2, 6 for E2M1); unsigned formats have their zero point in
//                the middle
//   asymmetric   low <= 0 <= high, scale = (high - low) / (codes - 1), zero point lowest + rne(-low / scale)
//   two-level    NVFP4 activations: low = -high, global
//                scale = high / (6 * 448); the scale of each block of 16
//                (E4M3, times the global one) comes from the block's own largest magnitude at run time.
//                Values beyond the range clip; nothing else depends on it, so mse and entropy give the
//                extremes
// Formats whose scales are all made at run time (MX, dynamic quantization) need no range.
//
// Tensors that hold nothing to go by: never seen, or all NaN and infinities: Error kUsage naming the tensor.
// All zeros: low = high = 0, mse 0; the caller chooses a scale. A constant has the constant as its range.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "calib/tensor_stats.h"
#include "engine/base/dtype.h"

namespace pare {

// What the tensor is quantized to: integers of 2 to 16 bits, or a float format of at most 8 bits with a zero.
struct RangeTarget {
  DType format = DType::kI8;
  bool symmetric = true;   // float formats always are
  bool narrow = false;     // signed integers, symmetric: without the lowest code (-128)
  bool two_level = false;  // E2M1 only: block scales at run time under one global scale
};

// The code that the largest magnitude of a symmetric range gets: 2^(bits-1) - 1 steps, or a float format's
// largest value.
double symmetric_largest(DType format);

struct RangeChoice {
  std::string method;  // "minmax", "percentile(99.99)", "entropy", "mse", "distribution"
  float low = 0, high = 0;
  double mse = 0;      // expected mean squared error over the finite values, rounding and clipping together
  double clipped = 0;  // share of the finite values outside of [low, high]
  std::int64_t candidates = 1;  // ranges that were compared
};

// The observed extremes.
RangeChoice range_minmax(const TensorStats& stats, const RangeTarget& target);

// The value below which `percent` of all finite values lie (zeros counted): of magnitudes when symmetric,
// else with half of the rest cut on either side. Linear inside a bin. Where that leaves nothing (the share of
// zeros is above the percentage), the extreme. 0 < percent <= 100.
RangeChoice range_percentile(const TensorStats& stats, const RangeTarget& target, double percent);

// Kullback-Leibler. h: counts of magnitudes without zeros, N used bins; L = 2^(bits-1) levels, 128 for 8
// bits; for each i = L .. N:
//   P = h[0..i) with the counts of h[i..N) added to its last bin, divided by its sum
//   Q = h[0..i) summed into L levels, bin j in level floor(L j / i); each level spread evenly over its
//       bins with P > 0; divided by its sum
//   KL(i) = sum over P > 0 of P ln(P / Q), infinite where Q = 0
// The smallest wins, of equal ones the last. The range is i bins wide, at most the extreme, on both sides
// (clipped to the extremes when asymmetric). Fewer than L bins, and 16-bit codes: min-max. Difference to
// older tools: no whole-number division of Q, no outliers in Q, every i. Source: S. Migacz, 8-bit inference
// with TensorRT, 2017.
RangeChoice range_entropy(const TensorStats& stats, const RangeTarget& target);

// The range of least expected error. Symmetric: amax * 2^(-i/16) over 12 octaves (float formats: also up to
// twice amax, since their grid repeats with every octave), then 2^(1/256) steps around the best. Asymmetric:
// both ends shrunk together, then one after the other until neither improves.
RangeChoice range_mse(const TensorStats& stats, const RangeTarget& target);

// Float formats: scale = standard deviation of the data / that of all finite codes (100.0577 for E4M3).
RangeChoice range_distribution(const TensorStats& stats, const RangeTarget& target);

// A range that was decided elsewhere, with its expected error.
RangeChoice range_given(const TensorStats& stats, const RangeTarget& target, float low, float high);

// By the name in a recipe: minmax, percentile (99.99), percentile(P), entropy, mse, distribution. Error
// kUsage for another, with the nearest.
RangeChoice range_by_method(const TensorStats& stats, const RangeTarget& target, const std::string& method);

// All methods: minmax, percentile(99.9), (99.99), (99.999), entropy, mse, and distribution for float formats.
std::vector<RangeChoice> all_methods(const TensorStats& stats, const RangeTarget& target);
// The one of least mse, the first of equal ones.
const RangeChoice& least_mse(const std::vector<RangeChoice>& choices);

}  // namespace pare
