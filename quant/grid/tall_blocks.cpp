#include "quant/grid/tall_blocks.h"

#include <algorithm>

#include "engine/base/error.h"
#include "quant/grid/search_rows.h"

namespace pare::quant {

Grid choose_tall_grid(const GridFormat& format, const RowShape& shape, const float* weight,
                      const GridSearch& options, ThreadPool& pool) {
  PARE_ASSERT(format.rows > 1 && format.symmetric && shape.cols == shape.segment);
  PARE_ASSERT(options.importance_rows == 0 || options.importance_rows >= shape.rows);
  const std::int64_t tall = format.rows, wide = format.group == 0 ? shape.cols : format.group;
  const std::int64_t groups = groups_of(format, shape), down = (shape.rows + tall - 1) / tall;
  // A block as one row, zeros where it is short: they change neither largest magnitude nor error. Blocks of
  // the same columns are neighbours, since they share a line of importance.
  std::vector<float> blocks(static_cast<std::size_t>(down * groups * tall * wide), 0.0f);
  std::vector<float> lines(options.importance == nullptr ? 0 : static_cast<std::size_t>(groups * tall * wide),
                           0.0f);
  pool.parallel_for(groups, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t g = begin; g < end; ++g) {
      const std::int64_t from = g * wide, n = std::min(wide, shape.cols - from);
      for (std::int64_t r = 0; r < shape.rows; ++r)
        std::copy_n(weight + r * shape.cols + from, n,
                    blocks.data() + ((g * down + r / tall) * tall + r % tall) * wide);
      for (std::int64_t t = 0; t < tall && !lines.empty(); ++t)
        std::copy_n(options.importance + from, n, lines.data() + (g * tall + t) * wide);
    }
  });
  GridFormat flat = format;
  flat.rows = 1;
  flat.group = 0;
  GridSearch search = options;
  search.gram = nullptr;
  search.importance = lines.empty() ? nullptr : lines.data();
  search.importance_rows = lines.empty() ? 0 : down;
  const RowShape whole = RowShape::whole(groups * down, tall * wide);
  Grid of_blocks;
  if (options.search && lines.empty() && format.scales == DType::kF32) {
    of_blocks = amax_grid(flat, whole, blocks.data(), pool);
    search_rows(flat, whole, blocks.data(), of_blocks, pool);
  } else {
    of_blocks = choose_grid(flat, whole, blocks.data(), search, pool);
  }
  Grid grid;
  grid.scales.resize(static_cast<std::size_t>(shape.rows * groups));
  for (std::int64_t r = 0; r < shape.rows; ++r)
    for (std::int64_t g = 0; g < groups; ++g)
      grid.scales[static_cast<std::size_t>(r * groups + g)] =
          of_blocks.scales[static_cast<std::size_t>(g * down + r / tall)];
  return grid;
}

}  // namespace pare::quant
