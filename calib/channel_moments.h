// Means by channel that a histogram cannot give: E[x], E[x^2], and the mean error that quantization makes.
//
// Sums are integers: x is rounded to a multiple of unit = 2^k, with k from the tensor's largest magnitude
// (known from a first pass), so the result is the same for any order, batches and threads. The rounding
// moves a mean by less than 2^-21 of the largest magnitude.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "calib/collector.h"

namespace pare {

struct ChannelMoments {
  std::string name;
  std::vector<double> mean, mean_square;  // by channel
  std::vector<double> mean_error;         // E[fake_quantize(x) - x]; empty when no scale was given
  std::uint64_t count = 0;                // finite values a channel
};

// What to watch, beside the value: amax > 0 bounds |x| (larger values count as amax). With scale > 0 the
// codes of `code_dtype` and `zero_point` say what quantization makes of x.
struct MomentRequest {
  WatchedValue value;  // channel_axis must be given
  double amax = 0;
  float scale = 0;
  std::int32_t zero_point = 0;
  DType code_dtype = DType::kI8;
};

class MomentCollector {
 public:
  explicit MomentCollector(ThreadPool& pool) : pool_(pool) {}
  MomentCollector(const MomentCollector&) = delete;
  MomentCollector& operator=(const MomentCollector&) = delete;

  // Watches these values of the session from now on; this object must outlive the runs.
  void attach(Session& session, const std::vector<MomentRequest>& requests);
  std::vector<ChannelMoments> moments() const;  // in the order of the requests

 private:
  struct Slot {
    MomentRequest request;
    double unit = 1, square_unit = 1;
    std::vector<std::int64_t> sum, square, error;  // by channel
    std::uint64_t count = 0;
  };
  void collect(Slot& slot, const TensorView& values);

  ThreadPool& pool_;
  std::vector<std::unique_ptr<Slot>> slots_;
};

}  // namespace pare
