#include "quant/grid/grid_search.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/base/error.h"
#include "engine/numeric/table.h"
#include "quant/grid/grid_search_groups.h"
#include "quant/grid/grid_search_lanes.h"
#include "quant/grid/tall_blocks.h"

namespace pare::quant {
namespace {

// Calls body(first group, groups, extremes) for 16 groups at a time: the rule of amax needs no more of them.
// Symmetric formats are given the largest magnitude as both.
void for_extremes(const GridFormat& format, const RowShape& shape, const float* weight, ThreadPool& pool,
                  const std::function<void(std::int64_t, int, const float*, const float*)>& body) {
  const std::int64_t groups = shape.rows * groups_of(format, shape);
  // Groups of one width lie one after the other; else one at a time.
  const bool even = format.group == 0 || shape.segment % format.group == 0;
  const std::int64_t width = format.group == 0 ? shape.cols : format.group;
  const auto extremes = PARE_SIMD_PICK(search_group_extremes);
  const auto magnitudes = PARE_SIMD_PICK(search_group_magnitudes);
  const GridSource source{shape, weight, {}};
  pool.parallel_for((groups + kSearchLanes - 1) / kSearchLanes, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t first = b * kSearchLanes;
      const auto n = static_cast<int>(std::min<std::int64_t>(kSearchLanes, groups - first));
      float low[kSearchLanes] = {}, high[kSearchLanes] = {};
      bool good = true;
      if (even && format.symmetric) {
        good = magnitudes(weight + first * width, n, width, high);
        for (int l = 0; l < n; ++l) low[l] = -high[l];
      } else if (even) {
        good = extremes(weight + first * width, n, width, low, high);
      }
      for (int l = 0; !even && l < n; ++l) {
        const WeightGroup group = group_at(format, source, first + l);
        good &= extremes(group.w, 1, group.n, low + l, high + l);
      }
      if (!good)
        throw make_error(ErrorCode::kBadFile, "a weight is NaN or infinite")
            .hint("look at the training run, or leave the layer out (ignore, --exclude)");
      body(first, n, low, high);
    }
  });
}

double amax_of(const std::vector<GridSource>& sources) {
  float amax = 0;
  for (const GridSource& s : sources) {
    float low = 0, high = 0;
    if (!PARE_SIMD_PICK(search_extremes)(s.weight, s.shape.count(), &low, &high))
      throw make_error(ErrorCode::kBadFile, "a weight is NaN or infinite")
          .hint("look at the training run, or leave the layer out (ignore, --exclude)");
    amax = std::max({amax, -low, high});
  }
  return static_cast<double>(amax);
}

// Total error of each global scale over some of the groups.
std::vector<double> errors_of(const GridFormat& format, const std::vector<float>& globals,
                              const GridSource& source, std::int64_t stride, ThreadPool& pool) {
  std::vector<LaneSearch> searches;
  for (const float global : globals) searches.emplace_back(format, global);
  const GramBlocks grams(format, source);
  const std::int64_t batches = (grams.batches().count() + stride - 1) / stride;
  std::vector<double> each(static_cast<std::size_t>(batches) * globals.size());
  for_batches(format, source, grams, stride, pool, [&](SearchBatch& batch, std::int64_t b) {
    for (std::size_t g = 0; g < globals.size(); ++g) {
      const LaneChoice choice = searches[g].search(batch);
      double sum = 0;
      for (int l = 0; l < batch.count(); ++l) sum += choice.error[l] * batch.unit(l);
      each[static_cast<std::size_t>(b) * globals.size() + g] = sum;
    }
  });
  std::vector<double> total(globals.size());
  for (std::size_t i = 0; i < each.size(); ++i) total[i % globals.size()] += each[i];
  return total;
}

}  // namespace

Grid choose_grid(const GridFormat& format, const RowShape& shape, const float* weight,
                 const GridSearch& options, ThreadPool& pool) {
  check_importance(shape, options);
  if (format.rows > 1) return choose_tall_grid(format, shape, weight, options, pool);
  const GridSource source{shape, weight, options};
  Grid grid;
  if (format.scales == DType::kE4M3FN)
    grid.global = options.global != 0 ? options.global : choose_global(format, {source}, pool);
  const auto count = static_cast<std::size_t>(shape.rows * groups_of(format, shape));
  grid.scales.resize(count);
  if (!format.symmetric) grid.zero_points.resize(count);
  const LaneSearch lanes(format, grid.global);
  const auto put = [&](std::int64_t first, int n, const LaneChoice& choice) {
    std::copy_n(choice.scale, n, grid.scales.begin() + first);
    for (int l = 0; !format.symmetric && l < n; ++l)
      grid.zero_points[static_cast<std::size_t>(first + l)] = static_cast<std::int32_t>(choice.zero[l]);
  };
  if (!options.search && !options.four_over_six)
    for_extremes(format, shape, weight, pool,
                 [&](std::int64_t first, int n, const float* low, const float* high) {
                   put(first, n, lanes.amax(low, high));
                 });
  else
    for_batches(format, source, GramBlocks(format, source), 1, pool, [&](SearchBatch& batch, std::int64_t) {
      put(batch.group(0).index, batch.count(),
          options.four_over_six ? lanes.four_over_six(batch) : lanes.search(batch));
    });
  return grid;
}

float choose_global(const GridFormat& format, const std::vector<GridSource>& sources, ThreadPool& pool) {
  constexpr std::int64_t kSample = 2048;
  constexpr double kEighth = 1.0905077326652577;  // of an octave
  if (sources.empty()) return 1;
  const GridSearch& options = sources[0].options;
  const double codes = format.largest_code() * (options.four_over_six ? 256 : 448);
  const auto base = static_cast<float>(amax_of(sources) / codes);
  if (!std::isnormal(base)) return 1;
  if (!options.search || !options.search_global || options.four_over_six) return base;
  std::vector<float> globals;
  double multiple = 1;
  for (int i = 0; i <= 8; ++i, multiple *= kEighth) {
    const auto global = static_cast<float>(static_cast<double>(base) * multiple);
    if (std::isnormal(global)) globals.push_back(global);
  }
  std::int64_t groups = 0;
  for (const GridSource& s : sources) {
    check_importance(s.shape, s.options);
    groups += s.shape.rows * groups_of(format, s.shape);
  }
  const std::int64_t stride = std::max<std::int64_t>(1, groups / kSample);
  std::vector<double> total(globals.size());
  for (const GridSource& s : sources) {
    const std::vector<double> errors = errors_of(format, globals, s, stride, pool);
    for (std::size_t g = 0; g < globals.size(); ++g) total[g] += errors[g];
  }
  return globals[static_cast<std::size_t>(std::min_element(total.begin(), total.end()) - total.begin())];
}

namespace {

// Sum over the groups of a row of e^T G e.
double quadratic_error(const GridFormat& format, const RowShape& shape, const GridSearch& options,
                       std::int64_t row, const float* w, const float* values) {
  const GridSource one{RowShape{1, shape.cols, shape.segment}, w, {}};
  const std::int64_t line = options.importance_rows == 0 ? 0 : row / options.importance_rows;
  const float* gram = options.gram + line * shape.cols * shape.cols;
  double sum = 0;
  for (std::int64_t g = 0; g < groups_of(format, shape); ++g) {
    const WeightGroup group = group_at(format, one, g);
    const std::int64_t begin = group.w - w;
    for (std::int64_t i = begin; i < begin + group.n; ++i)
      for (std::int64_t j = begin; j < begin + group.n; ++j)
        sum += static_cast<double>(gram[i * shape.cols + j]) *
               (static_cast<double>(w[i]) - static_cast<double>(values[i])) *
               (static_cast<double>(w[j]) - static_cast<double>(values[j]));
  }
  return sum;
}

}  // namespace

double grid_error(const GridFormat& format, const RowShape& shape, const Grid& grid, const float* weight,
                  const GridSearch& options, ThreadPool& pool) {
  const std::int64_t groups = groups_of(format, shape);
  std::vector<double> rows(static_cast<std::size_t>(shape.rows));
  pool.parallel_for(shape.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(shape.cols));
    std::vector<float> values(codes.size());
    const RowShape one{1, shape.cols, shape.segment};
    ThreadPool inline_pool(1);
    for (std::int64_t row = begin; row < end; ++row) {
      Grid line;
      line.global = grid.global;
      line.scales.assign(grid.scales.begin() + row * groups, grid.scales.begin() + (row + 1) * groups);
      if (!grid.zero_points.empty())
        line.zero_points.assign(grid.zero_points.begin() + row * groups,
                                grid.zero_points.begin() + (row + 1) * groups);
      const float* w = weight + row * shape.cols;
      encode(format, one, line, w, codes.data(), inline_pool);
      decode(format, one, line, codes.data(), values.data(), inline_pool);
      if (options.gram != nullptr) {
        rows[static_cast<std::size_t>(row)] = quadratic_error(format, shape, options, row, w, values.data());
        continue;
      }
      const float* h = importance_of(shape, options, row);
      double sum = 0;
      for (std::int64_t i = 0; i < shape.cols; ++i) {
        const double d = static_cast<double>(w[i]) - static_cast<double>(values[static_cast<std::size_t>(i)]);
        sum += (h == nullptr ? 1.0 : static_cast<double>(h[i])) * d * d;
      }
      rows[static_cast<std::size_t>(row)] = sum;
    }
  });
  double sum = 0;
  for (const double row : rows) sum += row;
  return sum;
}

}  // namespace pare::quant
