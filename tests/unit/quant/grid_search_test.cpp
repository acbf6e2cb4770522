#include "quant/grid_search.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/numeric/table.h"

namespace pare::quant {
namespace {

GridFormat format_of(DType codes, std::int64_t group, DType scales = DType::kF32, bool symmetric = true,
                     int bits = 0) {
  GridFormat format;
  format.codes = codes;
  format.group = group;
  format.symmetric = symmetric;
  format.scales = scales;
  format.bits = bits;
  return format;
}

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

std::vector<float> weights(std::int64_t n) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 0.03f);
  std::vector<float> w(static_cast<std::size_t>(n));
  for (float& v : w) v = normal(random);
  for (int i = 0; i < 33; ++i) w[static_cast<std::size_t>(i)] = 0;  // a group of zeros in every format
  w[40] = 0.5f;
  return w;
}

std::string label(const GridFormat& format) {
  return fmt::format("{} {} g{}{}", name(format.codes), name(format.scales), format.group,
                     format.symmetric ? "" : " asym");
}

TEST(GridSearch, NeverWorseThanAmax) {
  ThreadPool pool(2);
  const RowShape shape{6, 66, 33};
  const std::vector<float> w = weights(shape.count());
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

}  // namespace
}  // namespace pare::quant
