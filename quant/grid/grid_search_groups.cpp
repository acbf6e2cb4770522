#include "quant/grid/grid_search_groups.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"

namespace pare::quant {

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
      throw make_error(ErrorCode::kBadFile, "the importance of column {} is NaN, infinite or negative",
                       i % shape.cols)
          .hint("look at the samples for NaN and infinity: pare stats show STATS.h5");
}

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

Batches::Batches(const GridFormat& format, const GridSource& source)
    : a_row(groups_of(format, source.shape)), rows(source.shape.rows) {
  const RowShape& shape = source.shape;
  const std::int64_t width = format.group == 0 ? shape.cols : std::min(format.group, shape.segment);
  lanes = width > SearchBatch::kLongest ? 1 : kSearchLanes;
  if (source.options.gram != nullptr) return;
  a_row *= rows;  // one long row
  rows = 1;
}

GramBlocks::GramBlocks(const GridFormat& format, const GridSource& source) : batches_(format, source) {
  const RowShape& shape = source.shape;
  const float* gram = source.options.gram;
  if (gram == nullptr || batches_.count() == 0) return;
  width_ = format.group == 0 ? shape.cols : std::min(format.group, shape.segment);
  if (width_ > kWidest)
    throw make_error(ErrorCode::kUsage,
                     "groups of {} are too wide to be searched with a Gram matrix: {} is the most", width_,
                     kWidest)
        .hint("lower group_size (--group-size), or take --method search without data");
  rows_each_ = source.options.importance_rows == 0 ? shape.rows : source.options.importance_rows;
  const std::int64_t lines = (shape.rows - 1) / rows_each_ + 1, per_line = batches_.in_a_row();
  blocks_.assign(static_cast<std::size_t>(lines * per_line * width_ * width_ * kSearchLanes), 0.0f);
  units_.assign(static_cast<std::size_t>(lines * per_line * kSearchLanes), 0.0);
  diagonal_.resize(static_cast<std::size_t>(lines * shape.cols));
  GridSource plain = source;
  plain.options = {};
  for (std::int64_t line = 0; line < lines; ++line) {
    const float* matrix = gram + line * shape.cols * shape.cols;
    for (std::int64_t i = 0; i < shape.cols; ++i) {
      const float own = matrix[i * shape.cols + i];
      if (!(own >= 0))
        throw make_error(ErrorCode::kBadFile, "the second moment of column {} is NaN or negative", i)
            .hint("look at the samples for NaN and infinity: pare stats show STATS.h5");
      diagonal_[static_cast<std::size_t>(line * shape.cols + i)] = own;
    }
    for (std::int64_t g = 0; g < batches_.a_row; ++g) {
      const WeightGroup group = group_at(format, plain, g);
      fill(matrix, shape.cols, group, group.w - source.weight, line * per_line + g / kSearchLanes,
           g % kSearchLanes);
    }
  }
}

void GramBlocks::fill(const float* matrix, std::int64_t cols, const WeightGroup& group, std::int64_t begin,
                      std::int64_t place, std::int64_t lane) {
  float largest = 0;
  for (std::int64_t i = begin; i < begin + group.n; ++i) largest = std::max(largest, matrix[i * cols + i]);
  const float factor = largest > 0 ? std::ldexp(1.0f, std::clamp(-std::ilogb(largest), -126, 126)) : 1.0f;
  units_[static_cast<std::size_t>(place * kSearchLanes + lane)] = 1 / static_cast<double>(factor);
  float* block = blocks_.data() + place * width_ * width_ * kSearchLanes + lane;
  for (std::int64_t i = 0; i < group.n; ++i)
    for (std::int64_t j = 0; j < group.n; ++j) {
      const float v = matrix[(begin + i) * cols + begin + j];
      if (!std::isfinite(v))
        throw make_error(ErrorCode::kBadFile, "the second moment of columns {} and {} is NaN or infinite",
                         begin + i, begin + j)
            .hint("look at the samples for NaN and infinity: pare stats show STATS.h5");
      block[(i * width_ + j) * kSearchLanes] = v * factor;
    }
}

SearchBatch::LaneGram GramBlocks::block(std::int64_t batch) const {
  if (empty()) return {};
  const std::int64_t per_line = batches_.in_a_row();
  const std::int64_t at = batch / per_line / rows_each_ * per_line + batch % per_line;
  return {blocks_.data() + at * width_ * width_ * kSearchLanes, width_, units_.data() + at * kSearchLanes};
}

void for_batches(const GridFormat& format, const GridSource& source, const GramBlocks& grams,
                 std::int64_t stride, ThreadPool& pool,
                 const std::function<void(SearchBatch&, std::int64_t)>& body) {
  GridSource weighted = source;
  if (!grams.empty()) weighted.options.importance = grams.diagonal();
  const Batches& batches = grams.batches();
  pool.parallel_for((batches.count() + stride - 1) / stride, 1, [&](std::int64_t begin, std::int64_t end) {
    SearchBatch batch;
    WeightGroup list[kSearchLanes];
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t from = b * stride, first = batches.first(from);
      const int n = batches.size(from);
      for (int l = 0; l < n; ++l) list[l] = group_at(format, weighted, first + l);
      batch.load(list, n, grams.block(from));
      body(batch, b);
    }
  });
}

}  // namespace pare::quant
