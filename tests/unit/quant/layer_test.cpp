// Layer methods: the factor against Eigen, GPTQ against its published form in float64, descent against its
// own promise (never worse, loss as measured from scratch), formats, bad input, and the same bits for any
// threads.
#include "quant/rounding/layer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "engine/base/error.h"
#include "engine/base/isa.h"
#include "engine/numeric/table.h"
#include "quant/grid/ladder_table.h"
#include "quant/rounding/linalg.h"
#include "tests/unit/datasets/errors.h"

namespace pare::quant {
namespace {

std::vector<float> normal(std::int64_t n, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(0.0f, scale);
  std::vector<float> v(static_cast<std::size_t>(n));
  for (float& x : v) x = distribution(random);
  return v;
}

// Inputs as layers have them: correlated, of very different sizes, off zero.
Gram inputs(std::int64_t n, std::int64_t positions, unsigned seed, std::int64_t groups = 1) {
  Gram gram;
  gram.n = n;
  gram.groups = groups;
  const std::int64_t hidden = std::max<std::int64_t>(1, n / 3), width = n * groups;
  const std::vector<float> mix = normal(hidden * width, 99), size = normal(width, 98);
  const std::vector<float> z = normal(positions * hidden, seed),
                           noise = normal(positions * width, seed + 1, 0.3f);
  std::vector<float> x(static_cast<std::size_t>(width));
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t c = 0; c < width; ++c) {
      float sum = 0.5f + noise[static_cast<std::size_t>(p * width + c)];
      for (std::int64_t k = 0; k < hidden; ++k)
        sum += z[static_cast<std::size_t>(p * hidden + k)] * mix[static_cast<std::size_t>(k * width + c)];
      x[static_cast<std::size_t>(c)] = sum * std::exp(size[static_cast<std::size_t>(c)]);
    }
    add_plain(gram, x.data(), 1);
  }
  return gram;
}

WeightRows weight(std::int64_t rows, std::int64_t cols, unsigned seed, std::int64_t taps = 1) {
  return {{rows, cols, cols / taps}, normal(rows * cols, seed, 0.05f)};
}

GridFormat format(DType codes, std::int64_t group, bool symmetric = true, DType scales = DType::kF32,
                  int bits = 0) {
  GridFormat f;
  f.codes = codes;
  f.group = group;
  f.symmetric = symmetric;
  f.scales = scales;
  f.bits = bits;
  return f;
}

std::vector<GridFormat> all_formats() {
  return {format(DType::kI8, 0),
          format(DType::kU8, 0, false),
          format(DType::kI4, 32),
          format(DType::kI4, 0),
          format(DType::kU4, 16, false, DType::kBF16),
          format(DType::kI4, 32, true, DType::kF16, 3),
          format(DType::kI2, 16),
          format(DType::kE4M3FN, 0),
          format(DType::kE5M2, 0),
          format(DType::kE2M1, 16, true, DType::kE4M3FN),
          format(DType::kE2M1, 32, true, DType::kE8M0),
          format(DType::kE4M3FN, 32, true, DType::kE8M0)};
}

std::string label(const GridFormat& f) {
  return std::string(name(f.codes)) + " group " + std::to_string(f.group) + " " + name(f.scales);
}

LayerSolution solve(const WeightRows& w, const Gram* gram, const GridFormat& f, const std::string& method,
                    int threads = 1, const Gram* held_out = nullptr) {
  ThreadPool pool(threads);
  LayerProblem problem;
  problem.name = "fc1";
  problem.weight = &w;
  problem.gram = gram;
  problem.held_out = held_out;
  problem.format = f;
  LayerOptions options;
  options.method = method;
  return solve_layer(problem, options, pool);
}

TEST(Linalg, UpperFactorGivesTheMatrixBack) {
  ThreadPool pool(2);
  for (const std::int64_t n : {1, 2, 63, 64, 65, 130, 300}) {
    const Gram gram = inputs(n, 3 * n + 5, 3);
    std::vector<float> h = gram.dense(0);
    double mean = 0;
    for (std::int64_t i = 0; i < n; ++i) mean += static_cast<double>(h[static_cast<std::size_t>(i * n + i)]);
    mean /= static_cast<double>(n);
    for (std::int64_t i = 0; i < n; ++i)
      h[static_cast<std::size_t>(i * n + i)] += static_cast<float>(0.01 * mean);
    std::vector<float> r = h;
    std::vector<double> exact(h.begin(), h.end());
    ASSERT_TRUE(factor_upper(r.data(), n, pool));
    ASSERT_TRUE(factor_upper(exact.data(), n));
    double largest = 0;
    for (const float v : h) largest = std::max(largest, std::fabs(static_cast<double>(v)));
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        const auto at = static_cast<std::size_t>(i * n + j);
        if (j < i) {
          ASSERT_EQ(r[at], 0.0f);
          ASSERT_EQ(exact[at], 0.0);
        }
        double sum = 0, sum64 = 0;
        for (std::int64_t k = 0; k < n; ++k) {
          const auto a = static_cast<std::size_t>(i * n + k), b = static_cast<std::size_t>(j * n + k);
          sum += static_cast<double>(r[a]) * static_cast<double>(r[b]);
          sum64 += exact[a] * exact[b];
        }
        // Backward error of Cholesky: at most (n + 1) eps sqrt(h_ii h_jj) <= (n + 1) eps largest.
        const double bound = static_cast<double>(n + 4) * largest;
        ASSERT_NEAR(sum, static_cast<double>(h[at]), bound * std::exp2(-24));
        ASSERT_NEAR(sum64, static_cast<double>(h[at]), bound * std::exp2(-52));
      }
  }
}

TEST(Linalg, RefusesWhatIsNotPositiveDefinite) {
  ThreadPool pool(1);
  std::vector<float> zero = {0, 0, 0, 0}, indefinite = {1, 2, 2, 1}, nan = {1, 0, 0, NAN};
  EXPECT_FALSE(factor_upper(zero.data(), 2, pool));
  EXPECT_FALSE(factor_upper(indefinite.data(), 2, pool));
  EXPECT_FALSE(factor_upper(nan.data(), 2, pool));
  std::vector<double> a = {1, 2, 2, 1}, b = {NAN, 0, 0, 1}, inverse = {2, 1, 1, 2};
  EXPECT_FALSE(factor_upper(a.data(), 2));
  EXPECT_FALSE(invert_spd(b.data(), 2));
  ASSERT_TRUE(invert_spd(inverse.data(), 2));
  EXPECT_NEAR(inverse[0], 2.0 / 3, 1e-15);
  EXPECT_NEAR(inverse[1], -1.0 / 3, 1e-15);
}

// Sizes of one block of columns, of several, and with a narrow last one.
TEST(Linalg, QuadraticLossIsThatOfPlainLoops) {
  for (const auto& [n, rows] :
       {std::pair<std::int64_t, std::int64_t>{37, 300}, {128, 5}, {129, 20}, {300, 9}}) {
    ThreadPool pool(2);
    const Gram gram = inputs(n, 90, 4);
    const std::vector<float> h = gram.dense(0), d = normal(rows * n, 5);
    const std::vector<double> got = quadratic_loss(d.data(), rows, n, h.data(), pool);
    for (std::int64_t r = 0; r < rows; ++r) {
      double want = 0, magnitude = 0;
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          const double v = static_cast<double>(d[static_cast<std::size_t>(r * n + i)]) *
                           static_cast<double>(h[static_cast<std::size_t>(i * n + j)]) *
                           static_cast<double>(d[static_cast<std::size_t>(r * n + j)]);
          want += v;
          magnitude += std::fabs(v);
        }
      // A chain over at most n terms, the two parts added, one product more.
      EXPECT_NEAR(got[static_cast<std::size_t>(r)], want,
                  static_cast<double>(n + 2) * std::exp2(-24) * magnitude);
    }
  }
}

// Rounding on the ladder is what encode() does, for every format, at and beside every boundary.
TEST(Ladder, RoundsAsEncodeDoes) {
  ThreadPool pool(1);
  for (const GridFormat& f : all_formats()) {
    SCOPED_TRACE(label(f));
    const LadderTable table(f);
    std::vector<float> x = normal(4000, 1, 3);
    for (int i = -4000; i <= 4000; ++i) {
      const float at = static_cast<float>(i) / 16;
      x.insert(x.end(), {at, std::nextafter(at, 1e9f), std::nextafter(at, -1e9f), at / 256, at * 1024});
    }
    for (const float huge : {1e30f, 3e38f, 1e-30f, 0.0f}) x.insert(x.end(), {huge, -huge});
    GridFormat plain = f;
    plain.group = 0;
    plain.scales = DType::kF32;
    const auto n = static_cast<std::int64_t>(x.size());
    Grid grid;
    grid.scales = {1};
    const int zero = f.symmetric ? 0 : 5;
    if (!f.symmetric) grid.zero_points = {zero};
    std::vector<std::uint8_t> codes(x.size()), own(x.size());
    std::vector<float> levels(x.size()), image(x.size()), zeros(x.size(), static_cast<float>(zero));
    encode(plain, RowShape::whole(1, n), grid, x.data(), codes.data(), pool);
    decode(plain, RowShape::whole(1, n), grid, codes.data(), image.data(), pool);
    for (std::size_t i = 0; i < x.size(); ++i) levels[i] = table.get().round(x[i], static_cast<float>(zero));
    table.codes(levels.data(), zeros.data(), n, own.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(levels[i], image[i]) << x[i];
      if (image[i] != 0) {
        ASSERT_EQ(own[i], codes[i]) << x[i];
      }
    }
    // Steps along the ladder visit every level once.
    float level = table.get().round(-1e30f, static_cast<float>(zero));
    int steps = 1;
    for (;; ++steps) {
      const float up = table.get().next(level, 1, static_cast<float>(zero));
      if (up == level) break;
      ASSERT_GT(up, level);
      ASSERT_EQ(table.get().next(up, -1, static_cast<float>(zero)), level);
      level = up;
    }
    EXPECT_EQ(level, table.get().round(1e30f, static_cast<float>(zero)));
    const double wanted =
        format_info(f.codes).is_integer() ? f.largest_code() - f.lowest_code() + 1 : table.get().count;
    EXPECT_EQ(steps, wanted);
  }
}

// The published loop, in float64: U with H^-1 = U^T U, errors spread over the columns to come.
std::vector<double> published_gptq(const std::vector<float>& gram, const WeightRows& w, const Grid& grid,
                                   const GridFormat& f, const std::vector<std::int64_t>& order, double damp) {
  const std::int64_t n = w.shape.cols;
  const LadderTable table(f);
  double mean = 0;
  for (std::int64_t i = 0; i < n; ++i)
    mean += static_cast<double>(gram[static_cast<std::size_t>(i * n + i)]) / static_cast<double>(n);
  std::vector<double> h(static_cast<std::size_t>(n * n));
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      h[static_cast<std::size_t>(i * n + j)] =
          static_cast<double>(gram[static_cast<std::size_t>(order[static_cast<std::size_t>(i)] * n +
                                                            order[static_cast<std::size_t>(j)])]) +
          (i == j ? damp * mean : 0);
  invert_spd(h.data(), n);
  // U = the transposed lower factor of H^-1.
  std::vector<double> u(h.size());
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j <= i; ++j) {
      double sum = h[static_cast<std::size_t>(i * n + j)];
      for (std::int64_t k = 0; k < j; ++k)
        sum -= u[static_cast<std::size_t>(k * n + i)] * u[static_cast<std::size_t>(k * n + j)];
      u[static_cast<std::size_t>(j * n + i)] =
          i == j ? std::sqrt(sum) : sum / u[static_cast<std::size_t>(j * n + j)];
    }
  const std::vector<std::int32_t> group = groups_of_columns(f, w.shape);
  const std::int64_t groups = groups_of(f, w.shape);
  std::vector<double> image(w.values.size());
  for (std::int64_t r = 0; r < w.shape.rows; ++r) {
    std::vector<double> row(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i)
      row[static_cast<std::size_t>(i)] =
          static_cast<double>(w.values[static_cast<std::size_t>(r * n + order[static_cast<std::size_t>(i)])]);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t c = order[static_cast<std::size_t>(i)];
      const auto cell = static_cast<std::size_t>(r * groups + group[static_cast<std::size_t>(c)]);
      const float zero = grid.zero_points.empty() ? 0 : static_cast<float>(grid.zero_points[cell]);
      const double scale = static_cast<double>(grid.scales[cell]);
      const double q = static_cast<double>(table.get().round(
                           static_cast<float>(row[static_cast<std::size_t>(i)] / scale), zero)) *
                       scale;
      image[static_cast<std::size_t>(r * n + c)] = q;
      const double error = (row[static_cast<std::size_t>(i)] - q) / u[static_cast<std::size_t>(i * n + i)];
      for (std::int64_t j = i; j < n; ++j)
        row[static_cast<std::size_t>(j)] -= error * u[static_cast<std::size_t>(i * n + j)];
    }
  }
  return image;
}

TEST(Gptq, IsThePublishedUpdate) {
  ThreadPool pool(1);
  const Gram gram = inputs(150, 700, 6);
  const std::vector<float> dense = gram.dense(0);
  const WeightRows w = weight(70, 150, 7);
  for (const GridFormat& f : {format(DType::kI4, 32), format(DType::kU4, 50, false), format(DType::kI8, 0),
                              format(DType::kE2M1, 16, true, DType::kE4M3FN), format(DType::kE4M3FN, 0)})
    for (const ColumnOrder order :
         {ColumnOrder::kNatural, ColumnOrder::kDiagonal, ColumnOrder::kGroupAware}) {
      SCOPED_TRACE(label(f));
      const Grid grid = amax_grid(f, w.shape, w.values.data(), pool);
      const GptqFactor factor = gptq_factor(dense.data(), f, w.shape, 0.01, order, pool);
      ASSERT_EQ(factor.failure, "");
      std::vector<float> levels(w.values.size());
      gptq_rows(factor, f, w.shape, grid, w.values.data(), 0, 70, levels.data(), pool);
      const std::vector<double> want = published_gptq(dense, w, grid, f, factor.order, 0.01);
      const std::vector<std::int32_t> group = groups_of_columns(f, w.shape);
      const std::int64_t groups = groups_of(f, w.shape);
      std::int64_t same = 0;
      std::vector<float> image(levels.size()), other(levels.size());
      for (std::size_t i = 0; i < levels.size(); ++i) {
        const auto r = static_cast<std::int64_t>(i) / 150, c = static_cast<std::int64_t>(i) % 150;
        image[i] = levels[i] *
                   grid.scales[static_cast<std::size_t>(r * groups + group[static_cast<std::size_t>(c)])];
        other[i] = static_cast<float>(want[i]);
        same += std::fabs(image[i] - other[i]) < 1e-6f ? 1 : 0;
      }
      // A tie that falls the other way in float32 changes what follows in its row, nothing else: the loss is
      // that of float64, up to which side ties fall.
      EXPECT_GT(same, static_cast<std::int64_t>(levels.size()) * 97 / 100);
      const double mine = layer_loss(w, image.data(), &gram, pool).loss,
                   theirs = layer_loss(w, other.data(), &gram, pool).loss;
      EXPECT_NEAR(mine, theirs, 0.02 * theirs);
    }
}

TEST(Gptq, OrdersOfColumns) {
  ThreadPool pool(1);
  Gram gram;
  gram.n = 6;
  const float x[] = {1, 5, 2, 4, 3, 5};
  add_plain(gram, x, 1);
  std::vector<float> dense = gram.dense(0);
  for (int i = 0; i < 6; ++i) dense[static_cast<std::size_t>(i * 7)] += 1e-3f;
  const auto order = [&](ColumnOrder o) {
    return gptq_factor(dense.data(), format(DType::kI4, 2), RowShape::whole(1, 6), 0.5, o, pool).order;
  };
  EXPECT_EQ(order(ColumnOrder::kNatural), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(order(ColumnOrder::kDiagonal), (std::vector<std::int64_t>{1, 5, 3, 4, 2, 0}));
  EXPECT_EQ(order(ColumnOrder::kGroupAware), (std::vector<std::int64_t>{1, 0, 5, 4, 3, 2}));
}

// One position seen: rank one. Damping makes it definite; a dead column stays at its nearest code.
TEST(Gptq, SingularAndDeadColumns) {
  ThreadPool pool(1);
  Gram gram;
  gram.n = 40;
  std::vector<float> x = normal(40, 8);
  x[7] = 0;
  add_plain(gram, x.data(), 1);
  const GptqFactor factor = gptq_factor(gram.dense(0).data(), format(DType::kI4, 8), RowShape::whole(1, 40),
                                        0.01, ColumnOrder::kDiagonal, pool);
  EXPECT_EQ(factor.failure, "");
  EXPECT_EQ(factor.dead, 1);
  const WeightRows w = weight(9, 40, 9);
  for (const char* method : {"gptq", "learned"}) {
    const LayerSolution s = solve(w, &gram, format(DType::kI4, 8), method);
    EXPECT_EQ(s.fallback, "");
    const LayerSolution plain = solve(w, &gram, format(DType::kI4, 8), "search");
    EXPECT_LT(s.loss, plain.loss);
    for (std::size_t r = 0; r < 9 && s.method == "gptq"; ++r)
      EXPECT_EQ(s.codes[r * 40 + 7], plain.codes[r * 40 + 7]);
  }
}

class LayerFormats : public testing::TestWithParam<std::size_t> {};

// The loss that is reported is that of the codes, and methods come in their order.
TEST_P(LayerFormats, EachMethodImprovesOnTheOneBefore) {
  const GridFormat f = all_formats()[GetParam()];
  ThreadPool pool(1);
  const Gram gram = inputs(96, 500, 10), other = inputs(96, 300, 77);
  const WeightRows w = weight(40, 96, 11, 3);
  double before = INFINITY;
  for (const char* method : {"rtn", "gptq", "learned"}) {
    const LayerSolution s = solve(w, &gram, f, method, 1, &other);
    EXPECT_EQ(s.method, method);
    EXPECT_EQ(s.fallback, "");
    std::vector<float> image(w.values.size());
    decode(f, w.shape, s.grid, s.codes.data(), image.data(), pool);
    const LayerLoss loss = layer_loss(w, image.data(), &gram, pool);
    EXPECT_DOUBLE_EQ(loss.loss, s.loss);
    EXPECT_NEAR(s.sqnr_db, 10 * std::log10(loss.power / loss.loss), 1e-9);
    EXPECT_LT(s.loss, before * 0.999) << method;
    before = s.loss;
    // Scales are such as can be written.
    for (const float scale : s.grid.scales) {
      EXPECT_TRUE(std::isnormal(scale));
      EXPECT_EQ(scale, round_scale(f, static_cast<double>(scale), s.grid.global));
    }
  }
  const LayerSolution best = solve(w, &gram, f, "auto", 1, &other);
  ASSERT_EQ(best.candidates.size(), 4u);
  for (const LayerCandidate& c : best.candidates) EXPECT_LE(best.held_out_loss, c.loss) << c.method;
}

TEST_P(LayerFormats, SameBitsForAnyThreadsAndInstructionClass) {
  const GridFormat f = all_formats()[GetParam()];
  const Gram gram = inputs(70, 300, 12);
  const WeightRows w = weight(75, 70, 13);
  const LayerSolution want = solve(w, &gram, f, "learned");
  const Isa best = isa();
  for (const Isa level : {Isa::kScalar, Isa::kAvx2, best}) {
    if (level > best) continue;
    set_isa(level);
    const LayerSolution got = solve(w, &gram, f, "learned", 2);
    EXPECT_EQ(got.codes, want.codes) << name(level);
    EXPECT_EQ(got.grid.scales, want.grid.scales);
    EXPECT_EQ(got.grid.zero_points, want.grid.zero_points);
    set_isa(best);
  }
}

INSTANTIATE_TEST_SUITE_P(All, LayerFormats, testing::Range<std::size_t>(0, 12), [](const auto& p) {
  std::string text = label(all_formats()[p.param]);
  for (char& c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return text + "_" + std::to_string(p.param);
});

// On a layer small enough to try every code, descent ends at the best or close to it.
// The power that is kept changes no figure, and what is measured afterwards is what a solution says of
// itself.
TEST(SolveLayer, PowerIsKeptAndHeldOutLossMeasuredAlone) {
  ThreadPool pool(1);
  const WeightRows w = weight(9, 40, 9);
  const Gram fit = inputs(40, 90, 4), other = inputs(40, 30, 5);
  LayerProblem problem;
  problem.weight = &w;
  problem.gram = &fit;
  problem.held_out = &other;
  problem.format.codes = DType::kI4;
  problem.format.group = 8;
  LayerOptions options;
  LayerPower power;
  for (const char* method : {"rtn", "search", "gptq"}) {
    options.method = method;
    problem.power = nullptr;
    const LayerSolution fresh = solve_layer(problem, options, pool);
    problem.power = &power;
    const LayerSolution kept = solve_layer(problem, options, pool);
    EXPECT_EQ(fresh.relative_loss, kept.relative_loss) << method;
    EXPECT_EQ(fresh.held_out_loss, kept.held_out_loss) << method;
    std::vector<float> image(w.values.size());
    decode(problem.format, w.shape, fresh.grid, fresh.codes.data(), image.data(), pool);
    EXPECT_EQ(held_out_loss(w, image.data(), other, pool), fresh.held_out_loss) << method;
    EXPECT_EQ(layer_loss(w, image.data(), &fit, pool, power.fit).loss, fresh.loss) << method;
  }
  EXPECT_GT(power.fit, 0);
  EXPECT_GT(power.held_out, 0);
  Gram bad = other;
  bad.sums[0] = std::nan("");
  EXPECT_TRUE(std::isnan(held_out_loss(w, w.values.data(), bad, pool)));
  EXPECT_TRUE(std::isnan(held_out_loss(w, w.values.data(), Gram{}, pool)));
}

TEST(LearnedRounding, ComesCloseToTheBestOfAllCodes) {
  ThreadPool pool(1);
  const std::int64_t n = 6;
  const Gram gram = inputs(n, 60, 21);
  const std::vector<float> dense = gram.dense(0);
  const WeightRows w = weight(12, n, 22);
  const GridFormat f = format(DType::kI2, 0);
  const Grid grid = amax_grid(f, w.shape, w.values.data(), pool);
  LayerProblem problem;
  problem.name = "tiny";
  problem.weight = &w;
  problem.gram = &gram;
  problem.format = f;
  problem.grid = &grid;  // scales stay: the search below knows one scale
  LayerOptions options;
  options.method = "learned";
  options.rounding.ridge = 1e-6;
  const LayerSolution s = solve_layer(problem, options, pool);
  EXPECT_EQ(s.grid.scales, grid.scales);
  double best_sum = 0;
  for (std::int64_t r = 0; r < 12; ++r) {
    double best = INFINITY;
    for (int code = 0; code < 4096; ++code) {
      float d[6];
      for (std::int64_t i = 0; i < n; ++i)
        d[i] = w.values[static_cast<std::size_t>(r * n + i)] -
               static_cast<float>((code >> 2 * i & 3) - 2) * grid.scales[static_cast<std::size_t>(r)];
      best = std::min(best, quadratic_loss(d, 1, n, dense.data(), pool)[0]);
    }
    best_sum += best;
  }
  EXPECT_LT(s.loss, 1.1 * best_sum);
  EXPECT_GE(s.loss, best_sum * (1 - 1e-5));
}

TEST(Layer, ConvolutionGroupsHaveAMatrixEach) {
  const Gram gram = inputs(9, 400, 14, 8);
  WeightRows w = weight(16, 9, 15, 9);
  for (const char* method : {"gptq", "learned"}) {
    const LayerSolution s = solve(w, &gram, format(DType::kI4, 0), method);
    EXPECT_EQ(s.fallback, "");
    EXPECT_LT(s.loss, solve(w, &gram, format(DType::kI4, 0), "rtn").loss);
  }
}

TEST(Layer, FallsBackByNameAndSaysWhy) {
  const WeightRows w = weight(8, 16, 16);
  const GridFormat f = format(DType::kI4, 8);
  Gram nothing;
  nothing.n = 16;
  Gram broken = inputs(16, 40, 17);
  broken.sums[5] = std::numeric_limits<double>::quiet_NaN();
  Gram zeros;
  zeros.n = 16;
  const std::vector<float> x(16, 0.0f);
  add_plain(zeros, x.data(), 1);
  const auto expect = [&](const Gram* gram, const char* why) {
    const LayerSolution s = solve(w, gram, f, "gptq");
    EXPECT_EQ(s.method, "search");
    EXPECT_NE(s.fallback.find(why), std::string::npos) << s.fallback;
    EXPECT_EQ(s.codes.size(), w.values.size());
    const LayerSolution any = solve(w, gram, f, "auto");
    EXPECT_TRUE(any.method == "rtn" || any.method == "search" || any.method == "learned") << any.method;
  };
  expect(nullptr, "there are no second moments");
  expect(&nothing, "no data reached it");
  expect(&broken, "NaN");
  expect(&zeros, "ever other than zero");
}

TEST(Layer, RefusesBadInput) {
  WeightRows w = weight(8, 16, 18);
  const GridFormat f = format(DType::kI4, 8);
  const Gram other = inputs(17, 40, 19), grouped = inputs(16, 40, 19, 3);
  EXPECT_ERROR(solve(w, &other, f, "gptq"), "usage", "17 columns");
  EXPECT_ERROR(solve(w, &grouped, f, "gptq"), "usage", "3 groups");
  EXPECT_ERROR(solve(w, nullptr, f, "gtpq"), "usage", "no method");
  w.values[3] = std::numeric_limits<float>::infinity();
  EXPECT_ERROR(solve(w, nullptr, f, "rtn"), "bad_file", "NaN or infinite");
}

TEST(Layer, ZerosStayZeros) {
  const Gram gram = inputs(16, 60, 20);
  const WeightRows w = {{4, 16, 16}, std::vector<float>(64, 0.0f)};
  for (const GridFormat& f : all_formats())
    for (const char* method : {"rtn", "gptq", "learned", "auto"}) {
      const LayerSolution s = solve(w, &gram, f, method);
      EXPECT_EQ(s.loss, 0) << label(f) << method;
      EXPECT_EQ(s.relative_loss, 0);
    }
}

// Scales by what a group's errors do together; where it cannot be, the searched grid, with the reason.
TEST(Layer, LocalHessianWeighsErrorsOfNeighbours) {
  const WeightRows w = weight(48, 64, 21);
  const Gram gram = inputs(64, 400, 22);
  for (const GridFormat& f : {format(DType::kE2M1, 16, true, DType::kE4M3FN), format(DType::kI4, 32)}) {
    SCOPED_TRACE(label(f));
    const LayerSolution local = solve(w, &gram, f, "local_hessian");
    EXPECT_EQ(local.method, "local_hessian");
    EXPECT_EQ(local.fallback, "");
    EXPECT_LT(local.loss, solve(w, &gram, f, "search").loss);
    EXPECT_EQ(solve(w, &gram, f, "local_hessian", 2).codes, local.codes);
  }
  const LayerSolution rows = solve(w, &gram, format(DType::kI8, 0), "local_hessian");
  EXPECT_EQ(rows.method, "search");
  EXPECT_NE(rows.fallback.find("groups of at most 128"), std::string::npos) << rows.fallback;
  const LayerSolution blind = solve(w, nullptr, format(DType::kI4, 32), "local_hessian");
  EXPECT_EQ(blind.method, "search");
  EXPECT_NE(blind.fallback.find("second moments"), std::string::npos) << blind.fallback;
}

// Codes are solved on the scales of blocks; descent leaves those where they are.
TEST(Layer, BlocksOfSeveralRowsKeepOneScale) {
  const WeightRows w = weight(40, 64, 23);
  const Gram gram = inputs(64, 400, 24);
  GridFormat f = format(DType::kE4M3FN, 32, true, DType::kBF16);
  f.rows = 16;
  const LayerSolution plain = solve(w, &gram, f, "search");
  for (const char* method : {"gptq", "learned"}) {
    SCOPED_TRACE(method);
    const LayerSolution s = solve(w, &gram, f, method);
    EXPECT_EQ(s.method, method);
    EXPECT_LT(s.loss, plain.loss);
    for (std::size_t r = 0; r < 40; ++r)
      for (std::size_t g = 0; g < 2; ++g)
        EXPECT_EQ(s.grid.scales[r * 2 + g], s.grid.scales[r / 16 * 32 + g]) << r << " " << g;
  }
}

// tr(HO D G D^T) of a solution.
double coupled_loss(const WeightRows& w, const GridFormat& f, const LayerSolution& s, const Gram& g,
                    const Gram& outputs, ThreadPool& pool) {
  std::vector<float> image(w.values.size());
  decode(f, w.shape, s.grid, s.codes.data(), image.data(), pool);
  const std::int64_t m = w.shape.rows, n = w.shape.cols;
  const auto d = [&](std::int64_t r, std::int64_t c) {
    const auto i = static_cast<std::size_t>(r * n + c);
    return static_cast<double>(w.values[i]) - static_cast<double>(image[i]);
  };
  double sum = 0;
  for (std::int64_t r = 0; r < m; ++r)
    for (std::int64_t c = 0; c < n; ++c) {
      double left = 0, right = 0;  // (HO D)_rc, (D G)_rc
      for (std::int64_t k = 0; k < m; ++k) left += outputs.at(0, r, k) * d(k, c);
      for (std::int64_t k = 0; k < n; ++k) right += d(r, k) * g.at(0, k, c);
      sum += left * right;
    }
  return sum;
}

// Outputs whose errors go together: their loss falls, by both methods, with one scale a group or two levels;
// and the same bits for any threads.
TEST(CoupledRows, LowerTheLossThatOutputsHaveTogether) {
  const WeightRows w = weight(160, 48, 3);
  const Gram g = inputs(48, 400, 5), outputs = inputs(160, 900, 7);
  for (const GridFormat& f : {format(DType::kI4, 16, true, DType::kBF16), format(DType::kU4, 0, false),
                              format(DType::kE2M1, 16, true, DType::kE4M3FN)})
    for (const char* method : {"gptq", "learned"}) {
      ThreadPool one(1), two(2);
      LayerProblem problem;
      problem.name = "layer";
      problem.weight = &w;
      problem.gram = &g;
      problem.format = f;
      LayerOptions options;
      options.method = method;
      const LayerSolution alone = solve_layer(problem, options, one);
      problem.outputs = &outputs;
      const LayerSolution together = solve_layer(problem, options, one);
      EXPECT_EQ(together.method, method);
      EXPECT_TRUE(together.fallback.empty()) << together.fallback;
      EXPECT_LT(coupled_loss(w, f, together, g, outputs, one),
                0.9 * coupled_loss(w, f, alone, g, outputs, one));
      EXPECT_GE(together.loss, alone.loss);  // each output alone pays for it
      const LayerSolution again = solve_layer(problem, options, two);
      EXPECT_EQ(again.codes, together.codes);
      EXPECT_EQ(again.grid.scales, together.grid.scales);
      options.output_damp = 1;  // in between; without end, outputs are alike
      EXPECT_LT(coupled_loss(w, f, solve_layer(problem, options, one), g, outputs, one),
                coupled_loss(w, f, alone, g, outputs, one));
      options.output_damp = 1e12;
      if (f.scales != DType::kE4M3FN) {  // two levels: one global scale for all blocks of rows
        EXPECT_EQ(solve_layer(problem, options, one).codes, alone.codes);
      }
    }
}

// Outputs that have nothing to do with each other: what each row gets alone, bit for bit. And moments of
// another layer's outputs are not used.
TEST(CoupledRows, AreRowsAloneWhereOutputsAreIndependent) {
  const WeightRows w = weight(130, 32, 3);
  const Gram g = inputs(32, 300, 5);
  for (const std::int64_t m : {std::int64_t{130}, std::int64_t{64}}) {
    Gram outputs;
    outputs.n = m;
    outputs.count = 10;
    outputs.sums.assign(static_cast<std::size_t>(Gram::triangle(m)), 0.0);
    for (std::int64_t i = 0; i < m; ++i)
      outputs.sums[static_cast<std::size_t>(outputs.index(i, i))] = 1.0 + static_cast<double>(i % 7);
    ThreadPool pool(1);
    LayerProblem problem;
    problem.name = "layer";
    problem.weight = &w;
    problem.gram = &g;
    problem.format = format(DType::kI4, 16, true, DType::kBF16);
    LayerOptions options;
    options.method = "learned";
    const LayerSolution alone = solve_layer(problem, options, pool);
    problem.outputs = &outputs;
    const LayerSolution together = solve_layer(problem, options, pool);
    EXPECT_EQ(together.codes, alone.codes);
    EXPECT_EQ(together.grid.scales, alone.grid.scales);
  }
}

}  // namespace
}  // namespace pare::quant
