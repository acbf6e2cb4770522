// Which token comes next: the largest logit, or a draw from the distribution that they mean.
#pragma once

#include <cstdint>
#include <span>

namespace pare {

struct SamplingOptions {
  double temperature = 0;  // 0: always the largest logit. Else logits are divided by it
  std::int64_t top_k = 0;  // only the k largest; 0: all
  double top_p = 1;        // of those, the fewest whose probabilities sum up to it; 1: all
  std::uint64_t seed = 0;
};

// Draws are those of splitmix64 from the seed, one a token; equal logits stand in the order of their numbers.
// So the same logits and options give the same tokens on every machine.
class TokenSampler {
 public:
  // Error kUsage: a temperature below 0 or not finite, top_k below 0, top_p not in (0, 1].
  explicit TokenSampler(const SamplingOptions& options);

  // `logits` of one position, not empty. Error kBadFile when the largest is NaN or not finite.
  std::int64_t next(std::span<const float> logits);

 private:
  double draw();  // [0, 1), 53 bits

  SamplingOptions options_;
  std::uint64_t state_;
};

}  // namespace pare
