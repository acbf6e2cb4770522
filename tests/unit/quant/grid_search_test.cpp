#include "quant/grid/grid_search.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/base/isa.h"
#include "engine/numeric/e2m1.h"
#include "engine/numeric/e4m3.h"
#include "engine/numeric/table.h"
#include "quant/grid/clip_search.h"
#include "tests/unit/quant/grid_cases.h"

namespace pare::quant {
namespace {

std::vector<GridFormat> formats_of_interest() {
  std::vector<GridFormat> list = {format_of(DType::kI8, 0),
                                  format_of(DType::kU8, 0, DType::kF32, false),
                                  format_of(DType::kI4, 5),
                                  format_of(DType::kI4, 16, DType::kBF16),
                                  format_of(DType::kU4, 8, DType::kBF16, false),
                                  format_of(DType::kI4, 8, DType::kF16, true, 3),
                                  format_of(DType::kI2, 4),
                                  format_of(DType::kE4M3FN, 0),
                                  format_of(DType::kE5M2, 0),
                                  format_of(DType::kE2M1, 8, DType::kF16),
                                  format_of(DType::kE2M1, 16, DType::kE4M3FN),
                                  format_of(DType::kE2M1, 32, DType::kE8M0),
                                  format_of(DType::kE4M3FN, 32, DType::kE8M0)};
  GridFormat positive = format_of(DType::kI4, 16);
  positive.positive = true;
  list.push_back(positive);
  return list;
}

std::string label(const GridFormat& format) {
  return fmt::format("{} {} g{}{}", name(format.codes), name(format.scales), format.group,
                     format.symmetric ? "" : " asym");
}

TEST(GridSearch, NeverWorseThanAmax) {
  ThreadPool pool(2);
  const RowShape shape{6, 66, 33};
  const std::vector<float> w = grid_weights(shape.count());
  std::vector<float> importance(66);
  for (std::size_t i = 0; i < importance.size(); ++i) importance[i] = std::exp2(static_cast<float>(i % 7));
  for (const GridFormat& format : formats_of_interest())
    for (const bool weighted : {false, true}) {
      SCOPED_TRACE(label(format) + (weighted ? " weighted" : ""));
      GridSearch options;
      if (weighted) options.importance = importance.data();
      const Grid plain = amax_grid(format, shape, w.data(), pool);
      const Grid found = choose_grid(format, shape, w.data(), options, pool);
      ASSERT_EQ(found.scales.size(), plain.scales.size());
      ASSERT_EQ(found.zero_points.size(), plain.zero_points.size());
      EXPECT_LT(grid_error(format, shape, found, w.data(), options, pool),
                grid_error(format, shape, plain, w.data(), options, pool));
      const std::vector<float> written = written_scales(format, found);
      for (std::size_t i = 0; i < written.size(); ++i) {
        EXPECT_EQ(round_scale(format, static_cast<double>(found.scales[i]), found.global), found.scales[i]);
        EXPECT_TRUE(std::isnormal(found.scales[i]));
        EXPECT_TRUE(found.scales[i] > 0 || (format.symmetric && !format.positive));
      }
    }
}

TEST(GridSearch, RefusesWhatIsNoNumber) {
  ThreadPool pool(1);
  const RowShape shape = RowShape::whole(1, 4);
  const float good[4] = {0, 1, -1, 2}, nan[4] = {0, 1, std::nanf(""), 2}, infinite[4] = {0, 1, -INFINITY, 2};
  const float negative[4] = {0, 1, -1, 2};
  for (const GridFormat& format : formats_of_interest()) {
    EXPECT_THROW(choose_grid(format, shape, nan, {}, pool), Error) << label(format);
    EXPECT_THROW(choose_grid(format, shape, infinite, {}, pool), Error) << label(format);
    GridSearch options;
    options.importance = negative;
    EXPECT_THROW(choose_grid(format, shape, good, options, pool), Error) << label(format);
    options.importance = nan;
    EXPECT_THROW(choose_grid(format, shape, good, options, pool), Error) << label(format);
  }
}

// The error of one group in double, by the scalar functions of the formats.
double plain_error(DType codes, const float* w, const float* h, std::int64_t n, float scale) {
  const FormatInfo& info = format_info(codes);
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const float quotient = w[i] / scale;
    std::uint8_t code = 0;
    float value = 0;
    info.encode(&quotient, &code, 1);
    info.decode(&code, &value, 1);
    const double d = static_cast<double>(w[i]) - static_cast<double>(value * scale);
    sum += (h == nullptr ? 1.0 : static_cast<double>(h[i])) * d * d;
  }
  return sum;
}

// The search sums n terms of relative error 4 * 2^-24 in float32, one after the other.
double slack(std::int64_t n) { return 1 + static_cast<double>(n + 4) * 0x1p-23; }

// Blocks of `n` that are hard on a search: random of three kinds, values on ties and on codes of another
// scale, a large value among small ones that another scale would store exactly, constants, few values, blocks
// far below the largest of the tensor (whose E4M3 scales are subnormal), and zeros.
std::vector<float> hard_blocks(std::int64_t n, int count) {
  std::mt19937_64 random(23);
  std::normal_distribution<double> normal(0, 1);
  std::student_t_distribution<double> student(2.5);
  std::uniform_real_distribution<double> uniform(0, 1);
  const double codes[] = {0, .25, .5, .75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 7};
  std::vector<float> w;
  for (int b = 0; b < count; ++b) {
    const int kind = b % 9;
    const double size = kind == 7 ? std::exp2(-20 * uniform(random)) : std::exp2(-4 * uniform(random));
    const double other = 0.4 + uniform(random), level = codes[random() % 16];
    for (std::int64_t i = 0; i < n; ++i) {
      double v = 0;
      if (kind == 0 || kind == 7) v = normal(random);
      if (kind == 1) v = student(random);
      if (kind == 2) v = i == 3 ? 12 * normal(random) : normal(random);
      if (kind == 3) v = codes[random() % 16] * (random() % 2 ? 1 : -1);
      if (kind == 4) v = i == 0 ? 6 : other * codes[random() % 16] * (random() % 2 ? 1 : -1);
      if (kind == 5) v = i == 0 ? 6 : level * other;
      if (kind == 6) v = level;
      if (kind == 8) v = b % 2 ? 0 : i < 2 ? normal(random) : 0;
      w.push_back(static_cast<float>(v * size));
    }
  }
  return w;
}

// Importances over six decades, some 0.
std::vector<float> hard_importance(std::int64_t n) {
  std::mt19937_64 random(29);
  std::uniform_real_distribution<double> uniform(-3, 3);
  std::vector<float> h(static_cast<std::size_t>(n));
  for (float& v : h) v = random() % 8 == 0 ? 0.0f : static_cast<float>(std::pow(10, uniform(random)));
  return h;
}

// A search over a window against one over every scale there is.
void expect_best_of_all(const GridFormat& format, float global, const std::vector<float>& all_scales,
                        std::int64_t count) {
  ThreadPool pool(1);
  const std::int64_t n = format.group;
  const std::vector<float> w = hard_blocks(n, static_cast<int>(count));
  const std::vector<float> h = hard_importance(n * 64);
  const RowShape shape = RowShape::whole(count / 8, 8 * n);  // a block's importance depends on where it is
  for (const bool weighted : {false, true}) {
    GridSearch options;
    options.global = global;
    if (weighted) options.importance = h.data();
    const Grid found = choose_grid(format, shape, w.data(), options, pool);
    for (std::int64_t b = 0; b < count; ++b) {
      const float* block = w.data() + b * n;
      const float* line = weighted ? h.data() + b % 8 * n : nullptr;
      if (weighted && std::all_of(line, line + n, [](float v) { return v == 0; })) continue;
      double least = 1e300;
      for (const float scale : all_scales)
        least = std::min(least, plain_error(format.codes, block, line, n, scale));
      const double error =
          plain_error(format.codes, block, line, n, found.scales[static_cast<std::size_t>(b)]);
      ASSERT_LE(error, least * slack(n)) << "block " << b << (weighted ? " weighted" : "");
    }
  }
}

TEST(GridSearch, NvFp4WindowEqualsTheSweepOfAllCodes) {
  const GridFormat format = format_of(DType::kE2M1, 16, DType::kE4M3FN);
  for (const float global :
       {0x1p-8f, 0.00123f, 0x1p-3f, 40.0f}) {  // the last two: subnormal scales everywhere
    std::vector<float> scales;
    for (int code = 1; code < 127; ++code)
      scales.push_back(decode_e4m3(static_cast<std::uint8_t>(code)) * global);
    expect_best_of_all(format, global, scales, 3600);
  }
}

TEST(GridSearch, IntegersWithLevelsEqualTheSweep) {
  for (const DType codes : {DType::kI4, DType::kI8, DType::kI2, DType::kE4M3FN}) {
    std::vector<float> scales;
    for (int code = 1; code < 127; ++code)
      scales.push_back(decode_e4m3(static_cast<std::uint8_t>(code)) * 0.004f);
    expect_best_of_all(format_of(codes, 16, DType::kE4M3FN), 0.004f, scales, 720);
  }
}

TEST(GridSearch, MxWindowEqualsTheSweepOfAllExponents) {
  std::vector<float> scales;
  for (int e = -40; e <= 20; ++e) scales.push_back(std::ldexp(1.0f, e));
  for (const DType codes : {DType::kE2M1, DType::kE4M3FN, DType::kE5M2, DType::kI8})
    expect_best_of_all(format_of(codes, 32, DType::kE8M0), 0, scales, 1800);
}

// 20480 weights as real ones are, in one row.
std::vector<float> typical(bool student, std::int64_t n) {
  std::mt19937_64 random(31);
  std::normal_distribution<double> normal(0, 0.02);
  std::chi_squared_distribution<double> chi(5);
  std::vector<float> w(static_cast<std::size_t>(n));
  for (float& v : w)
    v = static_cast<float>(student ? normal(random) / std::sqrt(chi(random) / 5) : normal(random));
  return w;
}

// Every instruction class chooses the same grid and the same codes.
TEST(GridSearch, ClassesAgreeInEveryBit) {
  ThreadPool pool(2);
  const Isa before = isa();
  std::vector<float> w = typical(true, 12 * 700);
  const std::vector<float> importance = hard_importance(2 * 700);
  for (const RowShape& shape : {RowShape{12, 700, 350}, RowShape::whole(84, 100), RowShape::whole(1, 8400)})
    for (const GridFormat& format : formats_of_interest())
      for (const bool weighted : {false, true}) {
        GridSearch options;
        if (weighted && shape.cols == 700) {
          options.importance = importance.data();
          options.importance_rows = 6;
        }
        Grid expected;
        std::vector<std::uint8_t> expected_codes(w.size()), codes(w.size());
        for (const Isa level : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
          if (level > best_isa()) continue;
          SCOPED_TRACE(label(format) + " " + name(level));
          set_isa(level);
          const Grid grid = choose_grid(format, shape, w.data(), options, pool);
          std::vector<std::uint8_t>& into = level == Isa::kScalar ? expected_codes : codes;
          encode(format, shape, grid, w.data(), into.data(), pool);
          if (level == Isa::kScalar) {
            expected = grid;
            continue;
          }
          EXPECT_EQ(grid.scales, expected.scales);
          EXPECT_EQ(grid.zero_points, expected.zero_points);
          EXPECT_EQ(grid.global, expected.global);
          EXPECT_EQ(codes, expected_codes);
        }
        set_isa(before);
      }
}

TEST(GridSearch, ThreadsChangeNothing) {
  const std::vector<float> w = typical(false, 40 * 512);
  const RowShape shape = RowShape::whole(40, 512);
  ThreadPool one(1), three(3);
  for (const GridFormat& format : formats_of_interest()) {
    const Grid a = choose_grid(format, shape, w.data(), {}, one),
               b = choose_grid(format, shape, w.data(), {}, three);
    EXPECT_EQ(a.scales, b.scales) << label(format);
    EXPECT_EQ(a.global, b.global) << label(format);
  }
}

// What a format gains over the rule of the largest magnitude on 2^18 weights. Asked is what others reach
// within the same format (docs/accuracy.md); the squared error of a group of 128 varies by 1/8, so the mean
// of 2000 ratios is good to 0.3 %; t(5) errors vary more: 1 %.
TEST(GridSearch, GainsWithinOneFormat) {
  struct Row {
    GridFormat format;
    double code, gaussian, student;  // the baseline's scale is amax / code; 0: amax_grid
  };
  const Row rows[] = {
      {format_of(DType::kI4, 128, DType::kBF16), 7.5, .77, .75},
      {format_of(DType::kI4, 32, DType::kBF16), 7.5, .73, .74},
      {format_of(DType::kU4, 128, DType::kBF16, false), 7.5, .74, .60},
      {format_of(DType::kU4, 32, DType::kBF16, false), 7.5, .68, .57},
      {format_of(DType::kE2M1, 16, DType::kE4M3FN), 0, .731, .792},
      {format_of(DType::kE4M3FN, 0), 0, .965, .970},
      {format_of(DType::kE2M1, 32, DType::kE8M0), 0, .964, .946},
  };
  ThreadPool pool(2);
  const RowShape shape = RowShape::whole(128, 2048);
  for (const bool student : {false, true}) {
    const std::vector<float> w = typical(student, shape.count());
    for (const Row& row : rows) {
      GridFormat base = row.format;
      if (row.code != 0) base.codes = DType::kI4, base.symmetric = true;
      Grid plain = amax_grid(base, shape, w.data(), pool);
      for (float& scale : plain.scales)
        if (row.code != 0) scale = round_scale(base, static_cast<double>(scale) * 7 / row.code, 1);
      const Grid found = choose_grid(row.format, shape, w.data(), {}, pool);
      const double ratio = grid_error(row.format, shape, found, w.data(), {}, pool) /
                           grid_error(base, shape, plain, w.data(), {}, pool);
      const double asked = student ? row.student : row.gaussian;
      EXPECT_LE(ratio, asked * (student ? 1.01 : 1.003)) << label(row.format) << " asked " << asked;
      EXPECT_GE(ratio, asked * 0.9) << label(row.format) << " asked " << asked;
    }
  }
}

// The search that plan_weights had: the scale of the largest magnitude times each of a list of factors, then,
// for integers, twice the least-squares scale.
float former_scale(DType codes, const float* w, std::int64_t n) {
  float amax = 0;
  for (std::int64_t i = 0; i < n; ++i) amax = std::max(amax, std::fabs(w[i]));
  const double start =
      static_cast<double>(static_cast<float>(static_cast<double>(amax) / format_info(codes).largest));
  std::vector<double> factors = {1};
  for (int i = 1; i <= 40; ++i)
    factors.push_back(codes == DType::kI8 ? 1 - 0.0125 * i
                      : i < 32            ? std::exp2(i / 32.0)
                                          : std::exp2((31 - i) / 32.0));
  float best = 0;
  double least = 1e300;
  const auto offer = [&](float scale) {
    const double e = plain_error(codes, w, nullptr, n, scale);
    if (e < least) least = e, best = scale;
  };
  for (const double factor : factors) offer(static_cast<float>(start * factor));
  for (int round = 0; codes == DType::kI8 && round < 2; ++round) {
    double wq = 0, qq = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const double q = std::clamp(std::nearbyint(static_cast<double>(w[i] / best)), -128.0, 127.0);
      wq += static_cast<double>(w[i]) * q, qq += q * q;
    }
    offer(static_cast<float>(wq / qq));
  }
  return best;
}

TEST(GridSearch, NeverWorseThanTheFormerChannelSearch) {
  ThreadPool pool(2);
  for (const DType codes : {DType::kI8, DType::kE4M3FN})
    for (const std::int64_t cols : {27, 144, 576, 1500}) {
      GridFormat format = format_of(codes, 0);
      format.positive = true;
      const RowShape shape = RowShape::whole(24, cols);
      const std::vector<float> w = typical(true, shape.count());
      const Grid found = choose_grid(format, shape, w.data(), {}, pool);
      double total = 0, former = 0;
      for (std::int64_t row = 0; row < shape.rows; ++row) {
        const float* line = w.data() + row * cols;
        const double e = plain_error(codes, line, nullptr, cols, found.scales[static_cast<std::size_t>(row)]);
        const double f = plain_error(codes, line, nullptr, cols, former_scale(codes, line, cols));
        EXPECT_LE(e, f * 1.01) << name(codes) << " row " << row << " of " << cols;
        total += e, former += f;
      }
      EXPECT_LT(total, former) << name(codes) << " " << cols;
    }
}

// E[x x^T] of inputs that depend on each other, [cols, cols]: neighbours correlate by .7 and scales differ.
std::vector<float> correlated(std::int64_t cols) {
  std::vector<float> gram(static_cast<std::size_t>(cols * cols));
  for (std::int64_t i = 0; i < cols; ++i)
    for (std::int64_t j = 0; j < cols; ++j)
      gram[static_cast<std::size_t>(i * cols + j)] =
          static_cast<float>(std::pow(.7, std::abs(i - j)) * std::exp2(i % 5) * std::exp2(j % 5));
  return gram;
}

TEST(GridSearch, GramOfAGroup) {
  ThreadPool pool(2);
  const Isa before = isa();
  const RowShape shape{12, 104, 52};  // groups of 16, the last of a segment 4 wide
  const std::vector<float> w = typical(false, shape.count());
  std::vector<float> gram = correlated(104), other = correlated(104), diagonal;
  for (std::size_t i = 0; i < gram.size(); ++i) other[i] *= 3;
  for (std::size_t i = 0; i < 104; ++i) diagonal.push_back(gram[i * 105]);
  gram.insert(gram.end(), other.begin(), other.end());  // rows 6 to 11 have a matrix of their own
  GridSearch quadratic, weighted;
  quadratic.gram = gram.data();
  quadratic.importance_rows = 6;
  weighted.importance = diagonal.data();
  for (const GridFormat& format : formats_of_interest()) {
    SCOPED_TRACE(label(format));
    const auto error = [&](const Grid& grid) {
      return grid_error(format, shape, grid, w.data(), quadratic, pool);
    };
    const Grid found = choose_grid(format, shape, w.data(), quadratic, pool);
    EXPECT_LT(error(found), error(amax_grid(format, shape, w.data(), pool)));
    // The importance alone knows nothing of what errors of neighbours cancel.
    EXPECT_LT(error(found), 1.02 * error(choose_grid(format, shape, w.data(), weighted, pool)));
    for (const Isa level : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
      if (level > best_isa()) continue;
      set_isa(level);
      EXPECT_EQ(choose_grid(format, shape, w.data(), quadratic, pool).scales, found.scales) << name(level);
    }
    set_isa(before);
  }
}

// Against every scale code, by the same quadratic error.
TEST(GridSearch, NvFp4WithGramIsNearTheSweep) {
  ThreadPool pool(2);
  const GridFormat format = format_of(DType::kE2M1, 16, DType::kE4M3FN);
  const RowShape shape = RowShape::whole(60, 64);
  const std::vector<float> w = typical(true, shape.count()), gram = correlated(64);
  GridSearch options;
  options.gram = gram.data();
  options.global = 2e-5f;
  const Grid found = choose_grid(format, shape, w.data(), options, pool);
  double sum = 0;
  // One group at a time has the code, the others the found scales: errors add up.
  const double total = grid_error(format, shape, found, w.data(), options, pool);
  const RowShape row{1, 64, 64};
  ThreadPool single(1);
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    Grid line;
    line.global = found.global;
    line.scales.assign(found.scales.begin() + r * 4, found.scales.begin() + (r + 1) * 4);
    const double whole = grid_error(format, row, line, w.data() + r * 64, options, single);
    for (std::size_t g = 0; g < 4; ++g) {
      double best = whole;
      const float kept = line.scales[g];
      for (int code = 1; code < 127; ++code) {
        line.scales[g] = decode_e4m3(static_cast<std::uint8_t>(code)) * found.global;
        best = std::min(best, grid_error(format, row, line, w.data() + r * 64, options, single));
      }
      line.scales[g] = kept;
      sum += whole - best;
    }
  }
  EXPECT_LE(sum, 0.01 * total);
}

TEST(GridSearch, FourOverSixLiesBetween) {
  ThreadPool pool(1);
  const GridFormat format = format_of(DType::kE2M1, 16, DType::kE4M3FN);
  const RowShape shape = RowShape::whole(64, 1024);
  const std::vector<float> w = typical(false, shape.count());
  GridSearch four_over_six, same_global;
  four_over_six.four_over_six = true;
  const Grid some = choose_grid(format, shape, w.data(), four_over_six, pool);
  same_global.global = some.global;
  const Grid all = choose_grid(format, shape, w.data(), same_global, pool),
             plain = amax_grid(format, shape, w.data(), pool);
  const float amax = std::fabs(
      *std::max_element(w.begin(), w.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); }));
  EXPECT_EQ(some.global, static_cast<float>(static_cast<double>(amax) / (6 * 256)));
  const double least = grid_error(format, shape, all, w.data(), {}, pool);
  const double between = grid_error(format, shape, some, w.data(), {}, pool);
  const double most = grid_error(format, shape, plain, w.data(), {}, pool);
  EXPECT_LT(least, between);
  EXPECT_LT(between, most);
  EXPECT_NEAR(between / most, .00757 / .00904, .01);  // measured by others: docs/accuracy.md
}

// Three weights of very different size under one global scale.
TEST(GridSearch, OneGlobalScaleForSeveralWeights) {
  ThreadPool pool(2);
  const GridFormat format = format_of(DType::kE2M1, 16, DType::kE4M3FN);
  const RowShape shape = RowShape::whole(8, 256);
  std::vector<GridSource> sources(3);
  std::vector<std::vector<float>> weights;
  for (int i = 0; i < 3; ++i) {
    weights.push_back(typical(i == 1, shape.count()));
    for (float& v : weights.back()) v *= std::exp2(static_cast<float>(-5 * i));
  }
  for (std::size_t i = 0; i < 3; ++i) sources[i] = {shape, weights[i].data(), {}};
  const auto total = [&](float global) {
    double sum = 0;
    for (const GridSource& s : sources) {
      GridSearch options;
      options.global = global;
      sum +=
          grid_error(format, shape, choose_grid(format, shape, s.weight, options, pool), s.weight, {}, pool);
    }
    return sum;
  };
  const float found = choose_global(format, sources, pool);
  for (GridSource& s : sources) s.options.search_global = false;
  const float base = choose_global(format, sources, pool);
  EXPECT_GE(found, base);
  EXPECT_LE(found, 2.001f * base);
  EXPECT_LE(total(found), total(base) * (1 + 1e-5));
  EXPECT_EQ(choose_grid(format, shape, weights[0].data(), {}, pool).global,
            choose_global(format, {{shape, weights[0].data(), {}}}, pool));
}

// The rule without a search, written out.
// One scale for rows and columns of a block, as if it were one group; short blocks at both ends.
TEST(GridSearch, BlocksOfSeveralRowsShareAScale) {
  ThreadPool pool(2), single(1);
  constexpr std::int64_t kRows = 37, kCols = 50, kTall = 8, kWide = 16, kGroups = 4;
  const RowShape shape = RowShape::whole(kRows, kCols);
  const std::vector<float> w = typical(true, shape.count());
  for (const DType scales : {DType::kF32, DType::kBF16}) {
    SCOPED_TRACE(name(scales));
    GridFormat format = format_of(DType::kE4M3FN, kWide, scales);
    format.rows = kTall;
    GridSearch plain, weighted;
    plain.search = false;
    const Grid amax = choose_grid(format, shape, w.data(), plain, pool);
    const Grid searched = choose_grid(format, shape, w.data(), {}, pool);
    ASSERT_EQ(amax.scales.size(), static_cast<std::size_t>(kRows * kGroups));
    for (std::int64_t r = 0; r < kRows; ++r)
      for (std::int64_t g = 0; g < kGroups; ++g) {
        const std::int64_t first = r / kTall * kTall;
        float largest = 0;
        for (std::int64_t i = first; i < std::min(first + kTall, kRows); ++i)
          for (std::int64_t c = g * kWide; c < std::min((g + 1) * kWide, kCols); ++c)
            largest = std::max(largest, std::fabs(w[static_cast<std::size_t>(i * kCols + c)]));
        const auto at = static_cast<std::size_t>(r * kGroups + g);
        EXPECT_FLOAT_EQ(amax.scales[at], round_scale(format, static_cast<double>(largest) / 448, 1));
        EXPECT_EQ(searched.scales[at], searched.scales[static_cast<std::size_t>(first * kGroups + g)]);
      }
    const auto error = [&](const Grid& grid, const GridSearch& by) {
      return grid_error(format, shape, grid, w.data(), by, pool);
    };
    EXPECT_LT(error(searched, {}), error(amax, {}));
    EXPECT_EQ(choose_grid(format, shape, w.data(), {}, single).scales, searched.scales);
    // Two columns of each block are all that counts: a scale that suits them alone.
    std::vector<float> importance(static_cast<std::size_t>(kCols), 1e-6f);
    for (std::size_t c = 0; c < importance.size(); c += 8) importance[c] = 1;
    weighted.importance = importance.data();
    const Grid by_importance = choose_grid(format, shape, w.data(), weighted, pool);
    EXPECT_LT(error(by_importance, weighted), error(searched, weighted));
  }
}

TEST(GridSearch, AmaxRule) {
  ThreadPool pool(1);
  const RowShape shape = RowShape::whole(1, 4);
  const float w[4] = {-0.3f, 0.1f, 0.0f, 0.21f};
  const auto scale = [&](const GridFormat& format) { return amax_grid(format, shape, w, pool).scales[0]; };
  EXPECT_EQ(scale(format_of(DType::kI8, 0)), static_cast<float>(static_cast<double>(0.3f) / 127));
  EXPECT_EQ(scale(format_of(DType::kI4, 4, DType::kF32, true, 3)),
            static_cast<float>(static_cast<double>(0.3f) / 3));
  EXPECT_EQ(scale(format_of(DType::kE4M3FN, 0)), static_cast<float>(static_cast<double>(0.3f) / 448));
  EXPECT_EQ(scale(format_of(DType::kE2M1, 4, DType::kE8M0)), 0x1p-4f);  // 0.3 = 1.2 * 2^-2
  EXPECT_EQ(scale(format_of(DType::kE4M3FN, 4, DType::kE8M0)), 0x1p-10f);
  const Grid asymmetric = amax_grid(format_of(DType::kU4, 0, DType::kF32, false), shape, w, pool);
  EXPECT_EQ(asymmetric.scales[0],
            static_cast<float>((static_cast<double>(0.21f) + static_cast<double>(0.3f)) / 15));
  EXPECT_EQ(asymmetric.zero_points[0], 9);  // 0.3 / 0.034 = 8.8
  const Grid levels = amax_grid(format_of(DType::kE2M1, 2, DType::kE4M3FN), shape, w, pool);
  EXPECT_EQ(levels.global, static_cast<float>(static_cast<double>(0.3f) / 2688));
  EXPECT_EQ(levels.scales[0], 448 * levels.global);
  EXPECT_EQ(levels.scales[1], 320 * levels.global);  // 448 * 0.21 / 0.3 = 313.6, between 288 and 320
}

// Zeros, constants, denormals and the largest floats, alone and beside ordinary groups.
// Every group has the range, of eleven, of least error behind its part of the matrix: by loops in double, in
// which no other range may be better by more than rounding (a chain of float32 over n terms, one product
// more: (n + 2) 2^-24 of the magnitudes). All classes and threads choose the same.
TEST(ClipGrid, IsTheBestOfElevenRanges) {
  const RowShape shape{7, 66, 33};  // groups of 16 leave one of a single column in every segment
  const std::vector<float> w = grid_weights(shape.count());
  std::vector<std::vector<float>> grams(1, std::vector<float>(66 * 66));
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> x(66 * 200);
  for (float& v : x) v = normal(random);
  for (std::size_t i = 0; i < 66; ++i)
    for (std::size_t j = 0; j < 66; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < 200; ++k)
        sum +=
            static_cast<double>(x[k * 66 + i] + x[k * 66]) * static_cast<double>(x[k * 66 + j] + x[k * 66]);
      grams[0][i * 66 + j] = static_cast<float>(sum / 200);
    }
  for (GridFormat format : formats_of_interest()) {
    if (format.group != 0) format.group = 16;
    SCOPED_TRACE(label(format));
    ThreadPool pool(2), one(1);
    const Grid found = clip_grid(format, shape, w.data(), grams, pool);
    for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
      if (isa > best_isa()) continue;
      set_isa(isa);
      const Grid again = clip_grid(format, shape, w.data(), grams, one);
      EXPECT_EQ(again.scales, found.scales) << static_cast<int>(isa);
      EXPECT_EQ(again.zero_points, found.zero_points);
    }
    set_isa(best_isa());
    const Grid plain = amax_grid(format, shape, w.data(), pool);
    const std::int64_t groups = groups_of(format, shape), segment = format.group == 0 ? 66 : 33;
    // What a group costs on a scale, and what rounding may hide of it.
    const auto loss = [&](const Grid& grid, std::int64_t row, std::int64_t from, std::int64_t n,
                          double& slack) {
      std::vector<std::uint8_t> codes(w.size());
      std::vector<float> image(w.size());
      encode(format, shape, grid, w.data(), codes.data(), one);
      decode(format, shape, grid, codes.data(), image.data(), one);
      double sum = 0, magnitude = 0;
      for (std::int64_t i = from; i < from + n; ++i)
        for (std::int64_t j = from; j < from + n; ++j) {
          const auto d = [&](std::int64_t c) {
            const auto at = static_cast<std::size_t>(row * 66 + c);
            return static_cast<double>(image[at] - w[at]);
          };
          const double v = d(i) * static_cast<double>(grams[0][static_cast<std::size_t>(i * 66 + j)]) * d(j);
          sum += v;
          magnitude += std::fabs(v);
        }
      slack = std::max(slack, static_cast<double>(n + 2) * std::exp2(-24) * magnitude);
      return sum;
    };
    for (int step = 0; step <= 10; ++step) {
      Grid trial = plain;
      for (std::size_t g = 0; g < trial.scales.size(); ++g) {
        const float scale =
            round_scale(format, static_cast<double>(plain.scales[g]) * (1 - step / 20.0), plain.global);
        if (step > 0 && std::isnormal(scale)) trial.scales[g] = scale;
      }
      if (!format.symmetric) continue;  // zero points move along: the classes above hold them
      for (std::int64_t row = 0; row < shape.rows; ++row) {
        std::int64_t g = row * groups;
        for (std::int64_t s = 0; s < 66; s += segment)
          for (std::int64_t c = s; c < s + segment; c += format.group == 0 ? 66 : 16, ++g) {
            const std::int64_t n = std::min<std::int64_t>(format.group == 0 ? 66 : 16, s + segment - c);
            double slack = 0;
            const double best = loss(found, row, c, n, slack), other = loss(trial, row, c, n, slack);
            EXPECT_LE(best, other + 2 * slack) << "row " << row << ", column " << c << ", step " << step;
          }
      }
    }
  }
}

TEST(GridSearch, UglyGroups) {
  ThreadPool pool(1);
  const float values[] = {0, -0.0f, 1e-45f, -1e-40f, 1.2e-38f, 1e-30f, -0.7f, 1, 3e38f, -3.4028234e38f};
  std::vector<float> importance(32, 0.0f);
  for (const GridFormat& format : formats_of_interest())
    for (const float value : values)
      for (const bool alone : {false, true})
        for (const bool unused : {false, true}) {
          SCOPED_TRACE(fmt::format("{} {} {}", label(format), value, alone ? "alone" : "all"));
          std::vector<float> w(64, alone ? 0.0f : value);
          w[5] = value;
          GridSearch options;
          if (unused) options.importance = importance.data();
          const RowShape shape = RowShape::whole(2, 32);
          const Grid grid = choose_grid(format, shape, w.data(), options, pool);
          for (const float scale : grid.scales) EXPECT_TRUE(std::isnormal(scale));
          EXPECT_TRUE(std::isnormal(grid.global));
          std::vector<std::uint8_t> codes(w.size());
          std::vector<float> back(w.size());
          encode(format, shape, grid, w.data(), codes.data(), pool);
          decode(format, shape, grid, codes.data(), back.data(), pool);
          // A group of one value and zeros is stored within an eighth of the value (E2M1 with powers of two:
          // a quarter); beside the largest float, where twice the scale must not be infinite, within half.
          // Not where no normal scale is small enough, or float16 has no scale at all.
          if (std::fabs(value) < 1e-35f || format.scales == DType::kF16) continue;
          for (std::size_t i = 0; i < w.size(); ++i)
            EXPECT_LE(std::fabs(back[i] / 2 - w[i] / 2), std::fabs(w[i]) / (std::fabs(value) > 1e38f ? 4 : 6))
                << i;
        }
}

}  // namespace
}  // namespace pare::quant
