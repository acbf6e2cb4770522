// Thin products beside quantized weights.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "quant/rounding/low_rank.h"

namespace pare::quant {
namespace {

WeightRows random_rows(std::int64_t rows, std::int64_t cols, unsigned seed) {
  WeightRows w;
  w.shape = RowShape::whole(rows, cols);
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < rows * cols; ++i) w.values.push_back(normal(rng));
  return w;
}

double norm(const WeightRows& w, const std::vector<double>& gram) {
  const std::int64_t n = w.shape.cols;
  double sum = 0;
  for (std::int64_t r = 0; r < w.shape.rows; ++r)
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        sum += static_cast<double>(w.values[static_cast<std::size_t>(r * n + i)]) *
               gram[static_cast<std::size_t>(i * n + j)] *
               static_cast<double>(w.values[static_cast<std::size_t>(r * n + j)]);
  return sum;
}

std::vector<double> random_gram(std::int64_t n, unsigned seed, double spread) {
  const WeightRows x = random_rows(4 * n, n, seed);
  std::vector<double> gram(static_cast<std::size_t>(n * n), 0.0);
  for (std::int64_t r = 0; r < 4 * n; ++r)
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        const auto at = [&](std::int64_t k) {
          return static_cast<double>(x.values[static_cast<std::size_t>(r * n + k)]) *
                 std::pow(spread, static_cast<double>(k) / static_cast<double>(n));
        };
        gram[static_cast<std::size_t>(i * n + j)] += at(i) * at(j);
      }
  return gram;
}

TEST(LowRank, ExactWhereTheMatrixHasThatRank) {
  ThreadPool pool(2);
  const WeightRows b = random_rows(10, 3, 1), a = random_rows(3, 14, 2);
  WeightRows w = random_rows(10, 14, 3);
  for (int i = 0; i < 10; ++i)
    for (int j = 0; j < 14; ++j) {
      float sum = 0;
      for (int r = 0; r < 3; ++r)
        sum += b.values[static_cast<std::size_t>(i * 3 + r)] * a.values[static_cast<std::size_t>(r * 14 + j)];
      w.values[static_cast<std::size_t>(i * 14 + j)] = sum;
    }
  const std::vector<double> gram = random_gram(14, 4, 10);
  for (const double* g : {static_cast<const double*>(nullptr), gram.data()}) {
    const WeightRows rest = without(w, low_rank_of(w, g, 3, pool));
    for (const float v : rest.values) EXPECT_NEAR(v, 0, 1e-5);  // float32 of sums of three products near 1
  }
}

// By Eckart and Young no BA of the rank is better in the norm of G: not that of the plain SVD, not one whose
// directions were moved a little.
TEST(LowRank, WhitenedIsBetterThanPlainInTheNormOfG) {
  ThreadPool pool(1);
  const WeightRows e = random_rows(24, 16, 5);
  const std::vector<double> gram = random_gram(16, 6, 100);
  const LowRank best = low_rank_of(e, gram.data(), 4, pool);
  ASSERT_EQ(best.rank, 4);
  const double loss = norm(without(e, best), gram);
  EXPECT_LT(loss, 0.8 * norm(without(e, low_rank_of(e, nullptr, 4, pool)), gram));
  for (unsigned seed = 1; seed < 20; ++seed) {
    LowRank moved = best;
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal(0, 0.05f);
    for (float& v : moved.a) v *= 1 + normal(rng);
    for (float& v : moved.b) v += normal(rng) * 0.2f;
    EXPECT_GT(norm(without(e, moved), gram), loss);
  }
}

TEST(LowRank, ThreadsChangeNoBit) {
  ThreadPool one(1), four(4);
  const WeightRows e = random_rows(33, 21, 7);
  const std::vector<double> gram = random_gram(21, 8, 10);
  const LowRank a = low_rank_of(e, gram.data(), 5, one), b = low_rank_of(e, gram.data(), 5, four);
  EXPECT_EQ(a.a, b.a);
  EXPECT_EQ(a.b, b.b);
}

TEST(LowRank, ZeroAndDeficientMatrices) {
  ThreadPool pool(1);
  WeightRows zero = random_rows(6, 5, 1);
  zero.values.assign(zero.values.size(), 0.0f);
  for (const float v : without(zero, low_rank_of(zero, nullptr, 2, pool)).values) EXPECT_EQ(v, 0);
  EXPECT_EQ(low_rank_of(random_rows(3, 5, 1), nullptr, 8, pool).rank, 3);
  EXPECT_EQ(low_rank_of(zero, nullptr, 0, pool).rank, 0);
}

TEST(LowRank, CodesAndProductTogetherBeatCodes) {
  ThreadPool pool(1);
  WeightRows w = random_rows(32, 32, 9);
  for (int r = 0; r < 32; ++r) w.values[static_cast<std::size_t>(r * 32 + 7)] *= 8;  // one outlying column
  const std::vector<double> gram = random_gram(32, 10, 30);
  const auto round = [](WeightRows& rows) {  // four bits a row
    for (std::int64_t r = 0; r < rows.shape.rows; ++r) {
      float* x = rows.values.data() + r * rows.shape.cols;
      float amax = 0;
      for (std::int64_t i = 0; i < rows.shape.cols; ++i) amax = std::max(amax, std::fabs(x[i]));
      for (std::int64_t i = 0; i < rows.shape.cols; ++i) x[i] = std::nearbyint(x[i] / amax * 7) * amax / 7;
    }
  };
  const auto loss = [&](const WeightRows& e) { return norm(e, gram); };
  const LowRankChoice choice = choose_low_rank(w, gram.data(), 4, round, loss, pool);
  EXPECT_EQ(choice.part.rank, 4);
  EXPECT_LT(choice.loss, 0.3 * choice.plain_loss);
  // What is promised is what Q + BA is: the residual is W - BA, its error W - BA - Q.
  WeightRows error = without(w, choice.part);
  EXPECT_EQ(error.values, choice.residual.values);
  for (std::size_t i = 0; i < error.values.size(); ++i) error.values[i] -= choice.rounded.values[i];
  EXPECT_EQ(loss(error), choice.loss);
}

}  // namespace
}  // namespace pare::quant
