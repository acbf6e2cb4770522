// The ranges that a run tries for every activation, by name, in one order.
#pragma once

#include <string>
#include <vector>

#include "calib/ranges.h"
#include "calib/tensor_stats.h"
#include "quant/placement/placement.h"

namespace pare {

class RangeMethods {
 public:
  // `calibrator`: auto, or one method for all.
  RangeMethods(std::string calibrator, std::vector<double> percentiles)
      : calibrator_(std::move(calibrator)), percentiles_(std::move(percentiles)) {}

  bool several() const { return calibrator_ == "auto"; }
  // What is tried first, and alone where nothing is scored.
  std::string first() const { return several() ? "mse" : calibrator_; }
  // minmax, the percentiles, entropy, mse, "mse x 1.1", "mse x 1.25"; or the one.
  std::vector<std::string> names() const;
  // Of one activation, in the order of names(); one alone where all methods give the same (a Softmax output).
  std::vector<RangeChoice> ranges(const quant::ActivationSite& site, const TensorStats& stats) const;
  const RangeChoice& pick(const std::vector<RangeChoice>& ranges, const std::string& name) const;

 private:
  std::string calibrator_;
  std::vector<double> percentiles_;
};

// By any of those names.
RangeChoice range_by_name(const TensorStats& stats, const RangeTarget& target, const std::string& method);

RangeTarget range_target(const quant::Format& format);

}  // namespace pare
