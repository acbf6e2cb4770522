// Metrics of language models over the tokens that a data set scores.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/tensor.h"
#include "engine/base/thread_pool.h"

namespace pare {

// Perplexity: exp of the mean of -log p(token), natural logarithms, over all scored tokens. KL: the mean over
// them of KL(reference || candidate) in nats. Agreement: the share of them at which both have the same
// largest logit (the first of equal ones).
//
// Sums are in double, token after token in the order of the samples, so nothing depends on batches or
// threads. A NaN among the logits makes perplexity and KL NaN and agrees with nothing.
class TokenMetrics {
 public:
  // logits [batch, n, vocabulary] (float32; other floats are widened), targets int64 [batch, n] with -1 where
  // nothing is scored; `reference`, of the logits' shape, may be null. Error kUsage where shapes or numbers
  // do not fit together: a model whose first output is no logits.
  void add(const Tensor& logits, const Tensor& targets, const Tensor* reference, ThreadPool* pool);

  std::int64_t tokens() const { return tokens_; }
  double mean_nll() const;  // nats
  double perplexity() const;
  double kl() const;
  double agreement() const;

 private:
  std::int64_t tokens_ = 0, alike_ = 0;
  double nll_ = 0, kl_ = 0;
};

}  // namespace pare
