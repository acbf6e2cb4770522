// Streaming comparison of two tensors of samples. Every figure is a sum over samples of that sample's own
// sum, added in sample order in double, so neither batch size nor thread count can change a bit.
//
//   SQNR      10 log10(sum r^2 / sum (r - c)^2) over all samples, dB; equal values give +inf, an all-zero
//             reference that is not met exactly gives -inf
//   cosine    mean over samples of r.c / (|r| |c|); two zero vectors count 1, one zero vector 0
//   max_abs   largest |r - c|
//
// A NaN or infinity on either side makes the three figures NaN and is counted.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/tensor.h"

namespace pare {

class Comparison {
 public:
  // [n, ...] of float32 (other types: converted). The first dimension counts samples; both have the same
  // number of elements a sample, in the same order. Error kInternal otherwise.
  void add(const TensorView& reference, const TensorView& candidate);

  std::int64_t samples() const { return samples_; }
  double sqnr_db() const;
  double cosine() const;
  double max_abs() const;
  std::int64_t not_finite_reference() const { return not_finite_reference_; }
  std::int64_t not_finite_candidate() const { return not_finite_candidate_; }

 private:
  void add_sample(const float* r, const float* c, std::int64_t count);

  std::int64_t samples_ = 0, not_finite_reference_ = 0, not_finite_candidate_ = 0;
  double signal_ = 0, noise_ = 0, cosine_ = 0, max_abs_ = 0;
};

// Share of samples whose label is among the k largest outputs. Of equal outputs the one with the lower index
// is larger; a NaN anywhere in a sample's outputs makes the sample wrong.
class TopK {
 public:
  explicit TopK(int k) : k_(k) {}
  void add(const TensorView& outputs, const TensorView& labels);  // [n, classes] float32, [n] int64
  std::int64_t right() const { return right_; }
  double share() const {
    return samples_ == 0 ? 0 : static_cast<double>(right_) / static_cast<double>(samples_);
  }

 private:
  int k_;
  std::int64_t right_ = 0, samples_ = 0;
};

// How many values of a tensor lie outside [low, high], and how many were seen. NaN counts as outside.
struct ClipCount {
  double low = 0, high = 0;
  std::int64_t outside = 0, seen = 0;
  void add(const TensorView& values);
  double share() const { return seen == 0 ? 0 : static_cast<double>(outside) / static_cast<double>(seen); }
};

// float32 copy of any float or integer tensor (float32 itself is returned as it is).
Tensor to_float32(const TensorView& values);

// [n, h..., c] as [n, c, h...]: a channels-last value in the order of its plain form.
Tensor to_plain_order(const TensorView& channels_last);

}  // namespace pare
