#include "quant/rounding/low_rank.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"

namespace pare::quant {
namespace {

constexpr int kIterations =
    16;                     // of the subspace; the error of a direction falls by an eigenvalue ratio each
constexpr int kExtra = 8;   // directions beside the wanted ones
constexpr int kRounds = 3;  // codes and BA in turn

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

using Matrix = std::vector<double>;  // row by row

// out [m, k] = a [m, n] * b [n, k]; a given by its elements. Each row of `out` is summed by one thread, in
// order.
template <class Element>
Matrix product(std::int64_t m, std::int64_t n, std::int64_t k, const Element& a, const Matrix& b,
               ThreadPool& pool) {
  Matrix out(at(m * k), 0.0);
  pool.parallel_for(m, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      double* __restrict y = out.data() + i * k;
      for (std::int64_t l = 0; l < n; ++l) {
        const double v = a(i, l);
        const double* __restrict x = b.data() + l * k;
        for (std::int64_t j = 0; j < k; ++j) y[j] += v * x[j];
      }
    }
  });
  return out;
}

// Modified Gram-Schmidt, twice; a column that vanishes becomes zero and stays so.
void orthonormalize(Matrix& u, std::int64_t m, std::int64_t k) {
  for (std::int64_t j = 0; j < k; ++j) {
    const auto dot = [&](std::int64_t a, std::int64_t b) {
      double sum = 0;
      for (std::int64_t i = 0; i < m; ++i) sum += u[at(i * k + a)] * u[at(i * k + b)];
      return sum;
    };
    const double before = std::sqrt(dot(j, j));
    for (int round = 0; round < 2; ++round)
      for (std::int64_t l = 0; l < j; ++l) {
        const double along = dot(l, j);
        for (std::int64_t i = 0; i < m; ++i) u[at(i * k + j)] -= along * u[at(i * k + l)];
      }
    const double length = std::sqrt(dot(j, j));
    const double scale = length > 1e-12 * before && std::isfinite(length) ? 1 / length : 0.0;
    for (std::int64_t i = 0; i < m; ++i) u[at(i * k + j)] *= scale;
  }
}

// Numbers in [-1, 1] that look like noise: SplitMix64 of a fixed seed.
Matrix start(std::int64_t count) {
  Matrix u(at(count));
  std::uint64_t state = 0x9e3779b97f4a7c15;
  for (double& v : u) {
    std::uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    v = static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1;
  }
  return u;
}

}  // namespace

LowRank low_rank_of(const WeightRows& error, const double* gram, std::int64_t rank, ThreadPool& pool) {
  const std::int64_t m = error.shape.rows, n = error.shape.cols;
  LowRank part;
  part.rank = std::min({rank, m, n});
  if (part.rank <= 0) return part;
  const std::int64_t k = std::min(part.rank + kExtra, m);
  const float* e = error.values.data();
  const auto element = [&](std::int64_t i, std::int64_t l) { return static_cast<double>(e[i * n + l]); };
  const auto transposed = [&](std::int64_t i, std::int64_t l) { return static_cast<double>(e[l * n + i]); };
  Matrix u = start(m * k);
  orthonormalize(u, m, k);
  for (int round = 0; round < kIterations; ++round) {
    Matrix y = product(n, m, k, transposed, u, pool);
    if (gram != nullptr)
      y = product(
          n, n, k, [&](std::int64_t i, std::int64_t l) { return gram[i * n + l]; }, y, pool);
    u = product(m, n, k, element, y, pool);
    orthonormalize(u, m, k);
  }
  // Columns come in the order of their eigenvalues.
  Matrix kept(at(m * part.rank));
  for (std::int64_t i = 0; i < m; ++i) std::copy_n(u.data() + i * k, part.rank, kept.data() + i * part.rank);
  const Matrix a = product(n, m, part.rank, transposed, kept, pool);  // A transposed
  part.b.assign(kept.begin(), kept.end());
  part.a.resize(at(part.rank * n));
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t r = 0; r < part.rank; ++r)
      part.a[at(r * n + j)] = static_cast<float>(a[at(j * part.rank + r)]);
  return part;
}

WeightRows without(const WeightRows& weight, const LowRank& part) {
  WeightRows rest = weight;
  const std::int64_t n = weight.shape.cols;
  for (std::int64_t i = 0; i < weight.shape.rows; ++i)
    for (std::int64_t j = 0; j < n && part.rank > 0; ++j) {
      double sum = 0;
      for (std::int64_t r = 0; r < part.rank; ++r)
        sum +=
            static_cast<double>(part.b[at(i * part.rank + r)]) * static_cast<double>(part.a[at(r * n + j)]);
      float& w = rest.values[at(i * n + j)];
      w = static_cast<float>(static_cast<double>(w) - sum);
    }
  return rest;
}

LowRankChoice choose_low_rank(const WeightRows& weight, const double* gram, std::int64_t rank,
                              const std::function<void(WeightRows&)>& round,
                              const std::function<double(const WeightRows&)>& loss, ThreadPool& pool) {
  const auto difference = [](WeightRows a, const WeightRows& b) {
    for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] -= b.values[i];
    return a;
  };
  LowRankChoice best;
  best.rounded = weight;
  round(best.rounded);
  best.residual = best.target = weight;
  best.plain_loss = best.loss = loss(difference(weight, best.rounded));
  const LowRank of_weight = low_rank_of(weight, gram, rank, pool);
  const LowRank of_error = low_rank_of(difference(weight, best.rounded), gram, rank, pool);
  for (const LowRank* first : {&of_weight, &of_error}) {
    LowRank part = *first;
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kRounds; ++i) {
      const WeightRows target = without(weight, part);
      WeightRows rounded = target;
      round(rounded);
      part = low_rank_of(difference(weight, rounded), gram, rank, pool);
      const WeightRows residual = without(weight, part);
      const double value = loss(difference(residual, rounded));
      if (!std::isfinite(value) || value >= least) break;  // no better than the round before
      least = value;
      if (!(value < best.loss)) continue;
      best.loss = value;
      best.part = part;
      best.residual = residual;
      best.target = target;
      best.rounded = std::move(rounded);
    }
  }
  return best;
}

}  // namespace pare::quant
