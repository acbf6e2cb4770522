#include "eval/task/text.h"

#include <cmath>

#include "engine/base/error.h"
#include "engine/ops/sequence/token_rows.h"
#include "eval/compare.h"

namespace pare {
namespace {

struct Scored {
  double nll = 0, kl = 0;
  bool alike = false;
};

std::int64_t first_largest(const float* row, std::int64_t n) {
  std::int64_t best = 0;
  for (std::int64_t i = 1; i < n; ++i)
    if (row[i] > row[best]) best = i;
  return std::isnan(row[best]) ? -1 : best;
}

Scored score(const float* row, const float* reference, std::int64_t n, std::int64_t target) {
  const double lse = PARE_SIMD_PICK(row_log_sum_exp)(row, n);
  Scored s;
  s.nll = lse - static_cast<double>(row[target]);
  if (reference == nullptr) return s;
  const RowDistance d = PARE_SIMD_PICK(row_distance)(reference, row, n);
  s.kl = d.sum / d.weight - (d.largest + std::log(d.weight) - lse);
  const std::int64_t best = first_largest(row, n);
  s.alike = best >= 0 && best == first_largest(reference, n);
  return s;
}

}  // namespace

void TokenMetrics::add(const Tensor& logits, const Tensor& targets, const Tensor* reference,
                       ThreadPool* pool) {
  const Dims &dims = logits.dims(), &wanted = targets.dims();
  if (dims.size() != 3 || wanted.size() != 2 || dims[0] != wanted[0] || dims[1] != wanted[1])
    throw make_error(ErrorCode::kUsage, "the model's first output is {}, and the tokens are {}",
                     to_string(dims), to_string(wanted))
        .hint("metrics of text need logits [batch, sequence, vocabulary] as the first output");
  if (reference != nullptr && reference->dims() != dims)
    throw make_error(ErrorCode::kUsage, "the reference gives {}, and the candidate {}",
                     to_string(reference->dims()), to_string(dims))
        .hint("the two must be the same network with the same tokenizer");
  const Tensor mine = to_float32(logits.view());
  const Tensor theirs = reference != nullptr ? to_float32(reference->view()) : Tensor();
  const std::int64_t rows = wanted[0] * wanted[1], n = dims[2];
  const auto* target = targets.as<std::int64_t>();
  for (std::int64_t r = 0; r < rows; ++r)
    if (target[r] >= n)
      throw make_error(ErrorCode::kUsage, "token {} is none of the model's {}", target[r], n)
          .hint("are the tokenizer and the model of one checkpoint?");
  std::vector<Scored> scores(static_cast<std::size_t>(rows));
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      if (target[r] >= 0)
        scores[static_cast<std::size_t>(r)] =
            score(mine.as<float>() + r * n, reference != nullptr ? theirs.as<float>() + r * n : nullptr, n,
                  target[r]);
  };
  if (pool != nullptr)
    pool->parallel_for(rows, 8, body);
  else
    body(0, rows);
  for (std::int64_t r = 0; r < rows; ++r) {
    if (target[r] < 0) continue;
    const Scored& s = scores[static_cast<std::size_t>(r)];
    ++tokens_;
    nll_ += s.nll;
    kl_ += s.kl;
    alike_ += s.alike ? 1 : 0;
  }
}

double TokenMetrics::mean_nll() const {
  return tokens_ == 0 ? std::nan("") : nll_ / static_cast<double>(tokens_);
}
double TokenMetrics::perplexity() const { return std::exp(mean_nll()); }
double TokenMetrics::kl() const { return tokens_ == 0 ? std::nan("") : kl_ / static_cast<double>(tokens_); }
double TokenMetrics::agreement() const {
  return tokens_ == 0 ? std::nan("") : static_cast<double>(alike_) / static_cast<double>(tokens_);
}

}  // namespace pare
