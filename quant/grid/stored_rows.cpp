#include "quant/grid/stored_rows.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/table.h"
#include "quant/grid/grid_search.h"
#include "quant/grid/grid_search_simd.h"
#include "quant/grid/search_rows.h"

namespace pare::quant {
namespace {

constexpr std::int64_t kSliceFloats = 1 << 16;

// Calls body(first row, rows, their floats) for slices of rows, on the threads of the pool.
template <typename Body>
void for_slices(const Tensor& weight, ThreadPool& pool, const Body& body) {
  if (!is_float(weight.dtype()) || bits(weight.dtype()) < 16 || weight.dims().size() != 2)
    fail(ErrorCode::kUnsupported, "a stored weight is {} {}", name(weight.dtype()), to_string(weight.dims()));
  const std::int64_t rows = weight.dims()[0], cols = weight.dims()[1];
  if (rows == 0 || cols == 0) return;
  const std::int64_t slice = std::max<std::int64_t>(1, kSliceFloats / cols);
  const std::int64_t row_bytes = cols * bits(weight.dtype()) / 8;
  pool.parallel_for((rows + slice - 1) / slice, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> values(static_cast<std::size_t>(slice * cols));
    for (std::int64_t s = begin; s < end; ++s) {
      const std::int64_t first = s * slice, count = std::min(slice, rows - first);
      decode(weight.dtype(), weight.as<std::byte>() + first * row_bytes, values.data(), count * cols);
      body(first, count, values.data());
    }
  });
}

Grid grid_of(const GridFormat& format, const RowShape& shape, const float* weight, bool search, float global,
             ThreadPool& pool) {
  if (search && format.group == 0 && format.symmetric && format.scales == DType::kF32 &&
      format_info(format.codes).bits == 8) {
    Grid grid = amax_grid(format, shape, weight, pool);
    search_rows(format, shape, weight, grid, pool);
    return grid;
  }
  GridSearch options;
  options.search = search;
  options.global = global;
  return choose_grid(format, shape, weight, options, pool);
}

}  // namespace

StoredCodes quantize_stored(const GridFormat& format, const Tensor& weight, bool search, float global,
                            ThreadPool& pool) {
  const std::int64_t cols = weight.dims().at(1);
  const RowShape whole = RowShape::whole(weight.dims()[0], cols);
  PARE_ASSERT(format.scales != DType::kE4M3FN || global != 0);
  StoredCodes result;
  const std::int64_t groups = whole.count() == 0 ? 0 : groups_of(format, whole);
  result.codes.resize(static_cast<std::size_t>(whole.count()));
  result.grid.scales.resize(static_cast<std::size_t>(whole.rows * groups));
  if (!format.symmetric) result.grid.zero_points.resize(result.grid.scales.size());
  if (format.scales == DType::kE4M3FN) result.grid.global = global;
  for_slices(weight, pool, [&](std::int64_t first, std::int64_t count, const float* values) {
    const RowShape shape = RowShape::whole(count, cols);
    const Grid grid = grid_of(format, shape, values, search, global, pool);
    encode(format, shape, grid, values, result.codes.data() + first * cols, pool);
    std::copy(grid.scales.begin(), grid.scales.end(), result.grid.scales.begin() + first * groups);
    std::copy(grid.zero_points.begin(), grid.zero_points.end(),
              result.grid.zero_points.begin() + (format.symmetric ? 0 : first * groups));
  });
  return result;
}

float stored_amax(const Tensor& weight, ThreadPool& pool) {
  std::vector<float> rows(static_cast<std::size_t>(weight.dims().at(0)), 0);
  for_slices(weight, pool, [&](std::int64_t first, std::int64_t count, const float* values) {
    float low = 0, high = 0;
    if (!PARE_SIMD_PICK(search_extremes)(values, count * weight.dims()[1], &low, &high))
      fail(ErrorCode::kBadFile, "a weight is NaN or infinite");
    rows[static_cast<std::size_t>(first)] = std::max(-low, high);
  });
  return rows.empty() ? 0 : *std::max_element(rows.begin(), rows.end());
}

}  // namespace pare::quant
