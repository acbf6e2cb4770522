#include "quant/grid_search.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/base/error.h"
#include "engine/numeric/table.h"
#include "quant/grid_search_lanes.h"

namespace pare::quant {
namespace {

const float* importance_of(const RowShape& shape, const GridSearch& options, std::int64_t row) {
  if (options.importance == nullptr) return nullptr;
  return options.importance + (options.importance_rows == 0 ? 0 : row / options.importance_rows) * shape.cols;
}

void check_importance(const RowShape& shape, const GridSearch& options) {
  if (options.importance == nullptr || shape.rows == 0) return;
  const std::int64_t lines =
      options.importance_rows == 0 ? 1 : (shape.rows - 1) / options.importance_rows + 1;
  for (std::int64_t i = 0; i < lines * shape.cols; ++i)
    if (!(options.importance[i] >= 0) || !std::isfinite(options.importance[i]))
      fail(ErrorCode::kBadFile, "the importance of column {} is NaN, infinite or negative", i % shape.cols);
}

// The group with this index among the scales of the weight.
WeightGroup group_at(const GridFormat& format, const GridSource& source, std::int64_t index) {
  const RowShape& shape = source.shape;
  const std::int64_t a_row = groups_of(format, shape), row = index / a_row;
  std::int64_t begin = 0, n = shape.cols;
  if (format.group != 0) {
    const std::int64_t a_segment = (shape.segment + format.group - 1) / format.group;
    const std::int64_t segment = index % a_row / a_segment, at = index % a_segment * format.group;
    begin = segment * shape.segment + at;
    n = std::min(format.group, shape.segment - at);
  }
  const float* h = importance_of(shape, source.options, row);
  return {source.weight + row * shape.cols + begin, h == nullptr ? nullptr : h + begin, n, index};
}

// Calls body(batch) over all groups, `stride` batches apart; a group longer than a lane has its own batch.
// What a batch holds does not depend on threads.
void for_batches(const GridFormat& format, const GridSource& source, std::int64_t stride, ThreadPool& pool,
                 const std::function<void(SearchBatch&, std::int64_t)>& body) {
  const std::int64_t groups = source.shape.rows * groups_of(format, source.shape);
  const std::int64_t width =
      format.group == 0 ? source.shape.cols : std::min(format.group, source.shape.segment);
  const std::int64_t lanes = width > SearchBatch::kLongest ? 1 : kSearchLanes;
  const std::int64_t batches = (groups + lanes - 1) / lanes;
  pool.parallel_for((batches + stride - 1) / stride, 1, [&](std::int64_t begin, std::int64_t end) {
    SearchBatch batch;
    WeightGroup list[kSearchLanes];
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t first = b * stride * lanes;
      const auto n = static_cast<int>(std::min(lanes, groups - first));
      for (int l = 0; l < n; ++l) list[l] = group_at(format, source, first + l);
      batch.load(list, n);
      body(batch, b);
    }
  });
}

float amax_global(const GridFormat& format, const std::vector<GridSource>& sources) {
  float amax = 0;
  for (const GridSource& s : sources) {
    float low = 0, high = 0;
    if (!PARE_SIMD_PICK(search_extremes)(s.weight, s.shape.count(), &low, &high))
      fail(ErrorCode::kBadFile, "a weight is NaN or infinite");
    amax = std::max({amax, -low, high});
  }
  const auto global =
      static_cast<float>(static_cast<double>(amax) / (format_info(format.codes).largest * 448));
  return std::isnormal(global) ? global : 1;
}

}  // namespace

Grid choose_grid(const GridFormat& format, const RowShape& shape, const float* weight,
                 const GridSearch& options, ThreadPool& pool) {
  check_importance(shape, options);
  const GridSource source{shape, weight, options};
  Grid grid;
  if (format.scales == DType::kE4M3FN)
    grid.global = options.global != 0 ? options.global : choose_global(format, {source}, pool);
  const auto count = static_cast<std::size_t>(shape.rows * groups_of(format, shape));
  grid.scales.resize(count);
  if (!format.symmetric) grid.zero_points.resize(count);
  const LaneSearch lanes(format, grid.global);
  for_batches(format, source, 1, pool, [&](SearchBatch& batch, std::int64_t) {
    const LaneChoice choice = options.search ? lanes.search(batch) : lanes.amax(batch);
    for (int l = 0; l < batch.count(); ++l) {
      const auto i = static_cast<std::size_t>(batch.group(l).index);
      grid.scales[i] = choice.scale[l];
      if (!format.symmetric) grid.zero_points[i] = choice.zero[l];
    }
  });
  return grid;
}

float choose_global(const GridFormat& format, const std::vector<GridSource>& sources, ThreadPool&) {
  return amax_global(format, sources);
}

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
