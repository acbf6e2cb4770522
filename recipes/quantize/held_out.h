// Scores candidates on samples that no statistics were made from, and holds transforms to their word that the
// float function stays.
#pragma once

#include <optional>
#include <string>

#include "eval/evaluate.h"
#include "recipes/quantize/quantize_model.h"

namespace pare {

class HeldOut {
 public:
  // `input` must outlive this object.
  explicit HeldOut(const QuantizeInput& input) : in_(input) {}

  bool has_samples() const;
  // Output SQNR of a candidate against the float graph, dB, over the held-out samples.
  double score(const Graph& candidate);
  // Are the outputs of `graph` those of the float graph, up to 60 dB: a relative error of 1e-3, far above
  // float rounding and far below any quantization. Compared on the held-out samples (of text: the first few),
  // or the first few of calibration where there are none; without data nothing is compared.
  bool unchanged(const Graph& graph);
  // The same; error kInternal when they are not.
  void check_unchanged(const Graph& graph, const std::string& what);
  double seconds() const { return seconds_; }

 private:
  SampleRange checked_range() const;
  BatchOutputs outputs_of(const Graph& graph, const SampleRange& range);
  double likeness(const Graph& graph);  // SQNR against the float graph, infinite without data
  const BatchOutputs& reference();

  const QuantizeInput& in_;
  std::optional<BatchOutputs> reference_, checked_;  // of all held-out samples; of those that are compared
  double seconds_ = 0;
};

}  // namespace pare
