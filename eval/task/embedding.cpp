#include "eval/task/embedding.h"

#include <cmath>
#include <vector>

#include "engine/base/error.h"
#include "eval/compare.h"

namespace pare {
namespace {

// Sums of one sample over its tokens: a mean but for a factor, which no cosine sees.
std::vector<double> pooled(const float* rows, std::int64_t tokens, std::int64_t size,
                           const std::int64_t* mask) {
  std::vector<double> sum(static_cast<std::size_t>(size), 0.0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (mask != nullptr && mask[t] == 0) continue;
    for (std::int64_t i = 0; i < size; ++i)
      sum[static_cast<std::size_t>(i)] += static_cast<double>(rows[t * size + i]);
  }
  return sum;
}

double cosine(const std::vector<double>& a, const std::vector<double>& b) {
  double dot = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    dot += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  if (aa == 0 && bb == 0) return 1;
  const double result = dot / (std::sqrt(aa) * std::sqrt(bb));
  return std::isfinite(result) ? std::fmin(std::fmax(result, -1), 1) : 0;
}

}  // namespace

void EmbeddingCosine::add(const Tensor& reference, const Tensor& candidate, const Tensor* mask) {
  const Tensor r = to_float32(reference.view()), c = to_float32(candidate.view());
  const Dims& dims = r.dims();
  if (dims != c.dims() || dims.size() < 2 || dims.size() > 3)
    throw make_error(ErrorCode::kUsage,
                     "embeddings are [samples, size] or [samples, tokens, size], not {} and {}",
                     to_string(dims), to_string(c.dims()))
        .hint("the first output of an encoder is meant");
  const std::int64_t samples = dims[0], tokens = dims.size() == 3 ? dims[1] : 1, size = dims.back();
  const bool masked = mask != nullptr && dims.size() == 3 && mask->dims() == Dims{samples, tokens};
  for (std::int64_t s = 0; s < samples; ++s) {
    const std::int64_t* row = masked ? mask->as<std::int64_t>() + s * tokens : nullptr;
    const std::int64_t at = s * tokens * size;
    sum_ +=
        cosine(pooled(r.as<float>() + at, tokens, size, row), pooled(c.as<float>() + at, tokens, size, row));
  }
  samples_ += samples;
}

}  // namespace pare
