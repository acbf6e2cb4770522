#include "engine/run/token_sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "engine/base/error.h"

namespace pare {

TokenSampler::TokenSampler(const SamplingOptions& options) : options_(options), state_(options.seed) {
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature))
    throw make_error(ErrorCode::kUsage, "temperature {} makes no sense: 0 or more", options.temperature)
        .hint("0 takes the likeliest token, 1 samples as the model says");
  if (options.top_k < 0)
    throw make_error(ErrorCode::kUsage, "top_k {} makes no sense: 0 or more", options.top_k)
        .hint("0 keeps all tokens");
  if (!(options.top_p > 0 && options.top_p <= 1))
    throw make_error(ErrorCode::kUsage, "top_p {} makes no sense: above 0 and at most 1", options.top_p)
        .hint("1 keeps all tokens");
}

double TokenSampler::draw() {
  state_ += 0x9E3779B97F4A7C15;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

std::int64_t TokenSampler::next(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) fail(ErrorCode::kBadFile, "the model's logits are NaN");
    if (logits[i] > logits[best]) best = i;
  }
  if (!std::isfinite(logits[best])) fail(ErrorCode::kBadFile, "the model's largest logit is not finite");
  if (options_.temperature == 0) return static_cast<std::int64_t>(best);

  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::size_t count = order.size();
  if (options_.top_k > 0) count = std::min(count, static_cast<std::size_t>(options_.top_k));
  const auto larger = [&](std::size_t a, std::size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  const bool all = count == order.size() && options_.top_p == 1;
  if (!all)
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(), larger);
  std::vector<double> shares(count);
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double distance = static_cast<double>(logits[order[i]]) - static_cast<double>(logits[best]);
    sum += shares[i] = std::exp(distance / options_.temperature);
  }
  if (options_.top_p < 1) {
    double kept = 0;
    std::size_t last = 0;
    while (last < count && kept < options_.top_p * sum) kept += shares[last++];
    count = last;
    sum = kept;
  }
  double at = draw() * sum;
  for (std::size_t i = 0; i < count; ++i) {
    at -= shares[i];
    if (at < 0) return static_cast<std::int64_t>(order[i]);
  }
  return static_cast<std::int64_t>(order[count - 1]);
}

}  // namespace pare
