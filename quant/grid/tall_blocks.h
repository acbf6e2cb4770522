// Blocks of several rows: weights [rows, cols] whose scales are shared by `tall` rows and `wide` columns, as
// FP8 checkpoints of 128x128 have them. A grid (grid.h) holds such a scale once for each of its rows.
#pragma once

#include <cstdint>
#include <vector>

#include "quant/grid/grid_search.h"

namespace pare::quant {

// choose_grid() for a format with rows > 1: every block is searched as one group, its columns weighted as
// there (one line of importance; options.gram is not looked at). Short blocks at the ends are searched
// alone.
Grid choose_tall_grid(const GridFormat& format, const RowShape& shape, const float* weight,
                      const GridSearch& options, ThreadPool& pool);

// The scales as such files have them: [ceil(rows / tall), groups], of a grid's [rows, groups].
template <typename T>
std::vector<T> once_a_block(const std::vector<T>& values, std::int64_t rows, std::int64_t groups,
                            std::int64_t tall) {
  std::vector<T> out;
  for (std::int64_t r = 0; r < rows; r += tall)
    out.insert(out.end(), values.begin() + r * groups, values.begin() + (r + 1) * groups);
  return out;
}

}  // namespace pare::quant
