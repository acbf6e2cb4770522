// Learned rounding: codes, scales and zero points of a layer that make its output error small, by descent on
// the layer's quadratic tr(dW G dW^T), dW = W - Q. No gradients, no data: G is all that is needed.
//
// Rows do not know of each other. For each row, from codes on a grid (those of GPTQ, say), in turns:
//   groups   a group's columns and its scale together: the columns' best free values given all others, then
//            nearest plane (GPTQ inside the group) for each scale and zero point of a list around the present
//            one, then the least-squares scale under G of the best codes, rounded to how scales are written
//   codes    each code to its best value given all others, column after column
//   chains   two to twelve codes by one step each, where that helps; once the others find little
// Each move lowers the loss, so the result is never worse than the start. A row is done when a turn gains
// less than `stop` of its loss, or after `sweeps` turns: budgets are counted, never timed. The same bits for
// any threads and instruction class.
//
// A ridge on G's diagonal keeps directions that the data never showed from being used up.
#pragma once

#include <functional>
#include <vector>

#include "engine/base/tensor.h"
#include "quant/grid/grid.h"

namespace pare::quant {

struct RoundingOptions {
  int sweeps = 12;      // turns a row, at most
  double ridge = 0.01;  // share of the mean diagonal
  double stop = 1e-3;   // least gain of a turn, share of the row's loss
  bool scales = true;   // scales and zero points may move
  int effort = 1;       // chains: 0 none, 1 the promising, 2 most (three times as long)
  std::function<void(std::int64_t rows)> rows_done;  // that are finished; from any thread; may be empty
};

// G with its ridge, and what each group needs of it.
class RoundingMatrix {
 public:
  // `gram` [n][n]: E[x x^T], finite; n = shape.cols.
  RoundingMatrix(const float* gram, const GridFormat& format, const RowShape& shape, double ridge,
                 ThreadPool& pool);

  struct Group {
    std::int64_t begin = 0, size = 0;
    bool whole = false;
    std::vector<std::int32_t> order;  // by descending diagonal
    std::vector<float> upper, pivot;  // in `order`: R_ij / R_jj of the group's block of G, and R_jj^2
    Tensor inverse;                   // of the block, packed for products; none when whole
    std::vector<Tensor> above;        // the factor above each further kGptqColumns columns, packed
  };
  const std::vector<float>& gram() const { return gram_; }
  const std::vector<float>& diagonal() const { return diagonal_; }
  const std::vector<std::int32_t>& group_of() const { return group_of_; }
  const std::vector<Group>& groups() const { return groups_; }  // of a row
  bool usable() const { return usable_; }                       // false: indefinite in spite of the ridge

 private:
  std::vector<float> gram_, diagonal_;
  std::vector<std::int32_t> group_of_;
  std::vector<Group> groups_;
  bool usable_ = true;
};

// Improves levels (ladder.h, [rows][cols]) and grid of rows [begin, end). Returns turns taken, summed over
// rows.
std::int64_t learn_rounding(const RoundingMatrix& matrix, const GridFormat& format, const RowShape& shape,
                            const float* weight, std::int64_t begin, std::int64_t end, Grid& grid,
                            float* levels, const RoundingOptions& options, ThreadPool& pool);

}  // namespace pare::quant
