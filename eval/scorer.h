// The metrics of one model over a stream of batches, those of the table that need outputs and labels alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "eval/compare.h"
#include "eval/evaluate.h"
#include "eval/task/boxes.h"
#include "eval/task/ctc.h"
#include "eval/task/embedding.h"
#include "eval/task/text.h"

namespace pare {

class Scorer {
 public:
  // `outputs`: names of the results, in their order. `compared`: outputs of a reference come with each batch.
  Scorer(const std::vector<std::string>& metrics, const Dataset& data,
         const std::vector<std::string>& outputs, bool compared);

  // Results of one batch; `reference`, of the same batch by the reference, when `compared`. `pool` may be
  // null.
  void add(const std::vector<Tensor>& outputs, const Batch& batch, const std::vector<Tensor>* reference,
           ThreadPool* pool = nullptr);

  MetricValues values() const;
  std::int64_t not_finite(bool reference) const;

 private:
  bool wants(const char* name) const;
  void compare(const std::vector<Tensor>& outputs, const Batch& batch, const std::vector<Tensor>& reference);

  std::vector<std::string> metrics_;
  bool compared_;
  double threshold_;
  TopK top1_{1}, top5_{5}, top1_agreement_{1};
  std::optional<CtcText> text_;
  std::optional<BoxAgreement> boxes_;
  std::optional<TokenMetrics> tokens_;
  EmbeddingCosine embeddings_;
  int mask_ = -1;  // which input is attention_mask
  std::int64_t frames_ = 0, frames_alike_ = 0;
  std::vector<Comparison> outputs_;
};

// Error kUsage for unknown metrics and for what the data set lacks, kUnsupported for metrics that this build
// does not compute. `reference`: there is one to compare with.
void check_metrics(const std::vector<std::string>& metrics, const Dataset& data, bool reference);

// By sample: the place of its largest value (the first of equal ones).
std::vector<std::int64_t> largest_outputs(const Tensor& outputs);

}  // namespace pare
