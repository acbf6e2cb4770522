// Embeddings of texts by two models, and how far they point the same way.
#pragma once

#include <cstdint>

#include "engine/base/tensor.h"

namespace pare {

class EmbeddingCosine {
 public:
  // `reference`, `candidate`: float, [samples, size], embeddings themselves; or [samples, tokens, size], of
  // which the embedding is the mean over the tokens where `mask` (int64 [samples, tokens], may be null: all)
  // is not 0. Their length does not count. Error kUsage for other shapes, or two that differ.
  void add(const Tensor& reference, const Tensor& candidate, const Tensor* mask);

  // Mean over the samples, in their order, in double; in [-1, 1]. An embedding of zeros, or with NaN, has
  // cosine 0 with everything, two of zeros have 1. 0 without samples.
  double mean() const { return samples_ == 0 ? 0 : sum_ / static_cast<double>(samples_); }

 private:
  std::int64_t samples_ = 0;
  double sum_ = 0;
};

}  // namespace pare
