#include "quant/grid/stored_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/table.h"
#include "quant/grid/grid_search.h"
#include "quant/grid/grid_search_simd.h"
#include "quant/grid/search_rows.h"

namespace pare::quant {
namespace {

constexpr std::int64_t kSliceFloats = 1 << 15;

void check_stored(const Tensor& weight) {
  if (!is_float(weight.dtype()) || bits(weight.dtype()) < 16 || weight.dims().size() != 2)
    fail(ErrorCode::kUnsupported, "a stored weight is {} {}", name(weight.dtype()), to_string(weight.dims()));
}

// Calls body(first row, rows, their floats) for slices of rows, on the threads of the pool.
template <typename Body>
void for_slices(const Tensor& weight, ThreadPool& pool, const Body& body) {
  check_stored(weight);
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

// The order of magnitudes is that of their bits.
template <typename Int>
std::int64_t largest_magnitude(const std::byte* values, std::int64_t n) {
  using Loose __attribute__((aligned(1), may_alias)) = Int;
  const Loose* bits = reinterpret_cast<const Loose*>(values);
  Int largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const Int magnitude = static_cast<Int>(bits[i] & std::numeric_limits<Int>::max());
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
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

// Numbers of two's complement, out of the low bits of bytes.
void extend_signs(const GridFormat& format, std::uint8_t* codes, std::int64_t n) {
  const FormatInfo& info = format_info(format.codes);
  if (!info.is_integer() || !info.is_signed || info.bits >= 8) return;
  const auto sign = static_cast<std::uint8_t>(1u << (info.bits - 1));
  for (std::int64_t i = 0; i < n; ++i) codes[i] = static_cast<std::uint8_t>((codes[i] ^ sign) - sign);
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
    std::uint8_t* codes = result.codes.data() + first * cols;
    encode(format, shape, grid, values, codes, pool);
    extend_signs(format, codes, count * cols);
    std::copy(grid.scales.begin(), grid.scales.end(), result.grid.scales.begin() + first * groups);
    std::copy(grid.zero_points.begin(), grid.zero_points.end(),
              result.grid.zero_points.begin() + (format.symmetric ? 0 : first * groups));
  });
  return result;
}

StoredCodes quantize_stored_tensor(const GridFormat& format, const Tensor& weight, bool search,
                                   ThreadPool& pool) {
  check_stored(weight);
  PARE_ASSERT(format.group == 0 && format.scales != DType::kE4M3FN);
  const std::int64_t count = weight.size(), cols = weight.dims()[1];
  StoredCodes result;
  result.codes.resize(static_cast<std::size_t>(count));
  if (count == 0) {
    result.grid.scales.assign(1, 1.0f);
    if (!format.symmetric) result.grid.zero_points.assign(1, 0);
    return result;
  }
  if (search) {
    std::vector<float> values(static_cast<std::size_t>(count));
    decode(weight.dtype(), weight.data(), values.data(), count);
    result.grid = grid_of(format, RowShape::whole(1, count), values.data(), true, 0, pool);
  } else {
    std::vector<float> extremes(static_cast<std::size_t>(2 * weight.dims()[0]), 0);
    for_slices(weight, pool, [&](std::int64_t first, std::int64_t rows, const float* values) {
      float* both = extremes.data() + 2 * first;
      if (!PARE_SIMD_PICK(search_extremes)(values, rows * cols, both, both + 1))
        throw make_error(ErrorCode::kBadFile, "a weight is NaN or infinite")
            .hint("look at the training run, or leave the layer out (ignore, --exclude)");
    });
    result.grid = amax_grid(format, RowShape::whole(1, 2 * weight.dims()[0]), extremes.data(), pool);
  }
  for_slices(weight, pool, [&](std::int64_t first, std::int64_t rows, const float* values) {
    std::uint8_t* codes = result.codes.data() + first * cols;
    encode(format, RowShape::whole(1, rows * cols), result.grid, values, codes, pool);
    extend_signs(format, codes, rows * cols);
  });
  return result;
}

StoredCodes quantize_stored_blocks(const GridFormat& format, const Tensor& weight, std::int64_t tall,
                                   std::int64_t wide, bool search, ThreadPool& pool) {
  check_stored(weight);
  PARE_ASSERT(format.group == 0 && format.symmetric && format.scales != DType::kE4M3FN);
  PARE_ASSERT(tall > 0 && wide > 0);
  const std::int64_t outs = weight.dims()[0], ins = weight.dims()[1], size = tall * wide;
  const std::int64_t down = (outs + tall - 1) / tall, across = (ins + wide - 1) / wide;
  const std::int64_t together = std::max<std::int64_t>(1, kSliceFloats / size);
  const std::int64_t element = bits(weight.dtype()) / 8;
  StoredCodes result;
  result.codes.resize(static_cast<std::size_t>(outs * ins));
  result.grid.scales.resize(static_cast<std::size_t>(down * across));
  pool.parallel_for(down, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> values(static_cast<std::size_t>(together * size));
    std::vector<std::uint8_t> codes(values.size());
    for (std::int64_t place = begin * across; place < end * across; place += together) {
      const std::int64_t count = std::min(together, end * across - place);
      std::fill(values.begin(), values.end(), 0.0f);  // what short blocks lack
      // Calls body(place in the weight, place in `values`, columns) for the rows of the blocks.
      const auto for_rows = [&](const auto& body) {
        for (std::int64_t b = 0; b < count; ++b) {
          const std::int64_t top = (place + b) / across * tall, left = (place + b) % across * wide;
          const std::int64_t columns = std::min(wide, ins - left);
          for (std::int64_t r = 0; r < std::min(tall, outs - top); ++r)
            body((top + r) * ins + left, b * size + r * wide, columns);
        }
      };
      for_rows([&](std::int64_t from, std::int64_t to, std::int64_t columns) {
        decode(weight.dtype(), weight.as<std::byte>() + from * element, values.data() + to, columns);
      });
      const RowShape shape = RowShape::whole(count, size);
      const Grid grid = grid_of(format, shape, values.data(), search, 0, pool);
      encode(format, shape, grid, values.data(), codes.data(), pool);
      extend_signs(format, codes.data(), count * size);
      std::copy(grid.scales.begin(), grid.scales.end(), result.grid.scales.begin() + place);
      for_rows([&](std::int64_t to, std::int64_t from, std::int64_t columns) {
        std::copy_n(codes.begin() + from, columns, result.codes.begin() + to);
      });
    }
  });
  return result;
}

float stored_amax(const Tensor& weight, ThreadPool& pool) {
  check_stored(weight);
  constexpr std::int64_t kPiece = 1 << 16;
  const std::int64_t count = weight.size(), pieces = (count + kPiece - 1) / kPiece;
  const std::int64_t width = bits(weight.dtype()) / 8;
  if (width > 4) fail(ErrorCode::kUnsupported, "a stored weight is {}", name(weight.dtype()));
  std::vector<std::int64_t> largest(static_cast<std::size_t>(pieces));
  pool.parallel_for(pieces, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      const std::byte* values = weight.as<std::byte>() + p * kPiece * width;
      const std::int64_t n = std::min(kPiece, count - p * kPiece);
      largest[static_cast<std::size_t>(p)] = width == 2 ? largest_magnitude<std::int16_t>(values, n)
                                                        : largest_magnitude<std::int32_t>(values, n);
    }
  });
  if (pieces == 0) return 0;
  const std::int64_t most = *std::max_element(largest.begin(), largest.end());
  float amax = 0;
  if (width == 2) {
    const auto narrow = static_cast<std::uint16_t>(most);
    decode(weight.dtype(), &narrow, &amax, 1);
  } else {
    const auto wide = static_cast<std::uint32_t>(most);
    decode(weight.dtype(), &wide, &amax, 1);
  }
  if (!std::isfinite(amax))
    throw make_error(ErrorCode::kBadFile, "a weight is NaN or infinite")
        .hint("look at the training run, or leave the layer out (ignore, --exclude)");
  return amax;
}

}  // namespace pare::quant
