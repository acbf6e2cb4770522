// Internal to quant: the groups of a weight, and in which batches they are searched.
#pragma once

#include <functional>
#include <vector>

#include "quant/grid/grid_search.h"
#include "quant/grid/grid_search_batch.h"

namespace pare::quant {

// The line of importance of a row, or nullptr.
const float* importance_of(const RowShape& shape, const GridSearch& options, std::int64_t row);
// Error kBadFile for NaN, infinity and negative numbers.
void check_importance(const RowShape& shape, const GridSearch& options);
// The group with this index among the scales of the weight.
WeightGroup group_at(const GridFormat& format, const GridSource& source, std::int64_t index);

// Which groups lie in a batch. A group longer than a lane has one of its own; with a Gram matrix a batch does
// not cross rows, so that those of all rows share its blocks.
struct Batches {
  std::int64_t lanes, a_row, rows;

  Batches(const GridFormat& format, const GridSource& source);
  std::int64_t in_a_row() const { return (a_row + lanes - 1) / lanes; }
  std::int64_t count() const { return rows * in_a_row(); }
  std::int64_t first(std::int64_t batch) const {
    return batch / in_a_row() * a_row + batch % in_a_row() * lanes;
  }
  int size(std::int64_t batch) const {
    return static_cast<int>(std::min(lanes, a_row - batch % in_a_row() * lanes));
  }
};

// The blocks of Gram matrices along the diagonal that groups need, as batches want them, and the diagonal
// itself as importance. Each lane is multiplied by a power of two that brings its largest into [1, 2).
// Errors: kUsage for groups wider than kWidest; kBadFile for NaN, infinity and a negative diagonal.
class GramBlocks {
 public:
  static constexpr std::int64_t kWidest = 128;

  GramBlocks(const GridFormat& format, const GridSource& source);

  const Batches& batches() const { return batches_; }
  bool empty() const { return blocks_.empty(); }  // there is no matrix
  const float* diagonal() const { return diagonal_.data(); }
  SearchBatch::LaneGram block(std::int64_t batch) const;

 private:
  void fill(const float* matrix, std::int64_t cols, const WeightGroup& group, std::int64_t begin,
            std::int64_t place, std::int64_t lane);

  Batches batches_;
  std::int64_t width_ = 0, rows_each_ = 1;
  std::vector<float> blocks_, diagonal_;
  std::vector<double> units_;
};

// Calls body(batch, number) over all groups, or over every `stride`-th batch. What a batch holds does not
// depend on threads.
void for_batches(const GridFormat& format, const GridSource& source, const GramBlocks& grams,
                 std::int64_t stride, ThreadPool& pool,
                 const std::function<void(SearchBatch&, std::int64_t)>& body);

}  // namespace pare::quant
