// The grid of least squared error: for every group the scale (and zero point) whose codes are nearest to the
// weights, each weight's error counted with the importance of its column.
//
//   error   sum over the group of importance * (w - value(code(w)))^2, with codes from the rounded scale
//
//   integers      a grid of ranges, each improved by the least-squares scale of its codes; symmetric formats
//                 have negative scales too unless format.positive: they move the one code more to the other
//                 end. Asymmetric: zero points around that of the range, each with its grid of scales
//   FP8, E2M1     float scales over one octave and a quarter below: the step grows with the value, so what
//                 matters is where in a binade the values fall; then least squares
//   two levels    every E4M3 code that can be best (docs/accuracy.md proves which cannot)
//   E8M0          every power of two that can be best
//
// Never worse than amax_grid: that is among the candidates. Results do not depend on the number of threads or
// the instruction class. NaN or infinity in a weight: Error kBadFile. NaN, infinity or a negative number in
// the importance: Error kBadFile; columns of importance 0 are free, and a group of only such columns is
// searched as if all were 1.
// Sources: reference algorithms: ggml least squares; NVFP4 window arXiv 2606.07618; OCP MX 1.0.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/thread_pool.h"
#include "quant/grid/grid.h"

namespace pare::quant {

struct GridSearch {
  bool search = true;  // false: amax_grid (with the global scale below)

  // What an error in a column costs: second moments E[x^2] of the layer's inputs, [n, cols]. Rows 0 to
  // importance_rows - 1 use the first line, and so on (groups of a convolution); importance_rows 0: all rows
  // use one line. nullptr: 1 everywhere.
  const float* importance = nullptr;
  std::int64_t importance_rows = 0;

  // The error of a group as the output sees it, e^T G e with G its part of E[x x^T], in place of the
  // importance (Model Optimizer's local Hessian): [n, cols, cols], lines as above, symmetric. Groups of at
  // most 128. No window of scale codes is proven for it: 4 below and 9 above that of the largest magnitude
  // are tried.
  const float* gram = nullptr;

  // Two-level formats: the global scale to use; 0: chosen here: amax / (largest code * 448), or, where
  // search_global is set, the multiple of that, of nine over one octave, of least total error (of 2048 groups
  // at even distances in a larger weight). What matters is which E4M3 codes the groups' scales fall between,
  // and that the group of the largest weight has codes above its own.
  float global = 0;
  bool search_global = true;
  // Two-level formats: of the block scales only the largest magnitude over 6 and over 4, with a global scale
  // of amax / (6 * 256) (arXiv 2512.02010). Never better than the search, but what other programs write.
  bool four_over_six = false;
};

Grid choose_grid(const GridFormat& format, const RowShape& shape, const float* weight,
                 const GridSearch& options, ThreadPool& pool);

// One global scale for several weights that a runtime fuses (q, k, v; gate, up): of least total error, or,
// with search false or search_global false in the first, amax of all / (largest code * 448).
struct GridSource {
  RowShape shape;
  const float* weight = nullptr;
  GridSearch options;
};
float choose_global(const GridFormat& format, const std::vector<GridSource>& sources, ThreadPool& pool);

// The error above, summed over the weight (not divided by anything), in double.
double grid_error(const GridFormat& format, const RowShape& shape, const Grid& grid, const float* weight,
                  const GridSearch& options, ThreadPool& pool);

}  // namespace pare::quant
