#include "quant/grid.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/numeric/bf16.h"
#include "engine/numeric/e4m3.h"
#include "engine/numeric/e8m0.h"
#include "engine/numeric/f16.h"
#include "engine/numeric/table.h"
#include "quant/grid_search.h"

namespace pare::quant {
namespace {

constexpr double kLargestE4m3 = 448;
constexpr float kSmallestE4m3 = 0x1p-9f;

const FormatInfo& info_of(const GridFormat& format) { return format_info(format.codes); }

// Calls visit(group index in the tensor, first element, length) for the groups of rows [begin, end).
template <class Visit>
void for_groups(const GridFormat& format, const RowShape& shape, std::int64_t begin, std::int64_t end,
                Visit&& visit) {
  const std::int64_t groups = groups_of(format, shape);
  const std::int64_t segment = format.group == 0 ? shape.cols : shape.segment;
  const std::int64_t width = format.group == 0 ? shape.cols : format.group;
  for (std::int64_t row = begin; row < end; ++row) {
    std::int64_t g = row * groups;
    for (std::int64_t s = 0; s < shape.cols; s += segment)
      for (std::int64_t c = s; c < s + segment; c += width)
        visit(g++, row * shape.cols + c, std::min(width, s + segment - c));
  }
}

}  // namespace

double GridFormat::largest_code() const {
  const FormatInfo& info = format_info(codes);
  if (bits == 0 || !info.is_integer()) return info.largest;
  return info.is_signed ? std::ldexp(1.0, bits - 1) - 1 : std::ldexp(1.0, bits) - 1;
}

double GridFormat::lowest_code() const {
  const FormatInfo& info = format_info(codes);
  if (!info.is_integer()) return -info.largest;
  return info.is_signed ? -largest_code() - 1 : 0;
}

std::int64_t groups_of(const GridFormat& format, const RowShape& shape) {
  if (format.group == 0) return 1;
  if (shape.segment == 0) return 0;
  return shape.cols / shape.segment * ((shape.segment + format.group - 1) / format.group);
}

ScaleLayout layout_of(const GridFormat& format, const RowShape& shape) {
  if (format.group == 0) return ScaleLayout::per_channel({shape.rows, shape.cols}, 0);
  const std::int64_t taps = shape.segment == 0 ? 0 : shape.cols / shape.segment;
  return ScaleLayout::blocked({shape.rows * taps, shape.segment}, 1, format.group);
}

float round_scale(const GridFormat& format, double scale, float global) {
  const auto narrow = static_cast<float>(scale);
  switch (format.scales) {
    case DType::kF16:
      return decode_f16(encode_f16(narrow));
    case DType::kBF16:
      return decode_bf16(encode_bf16(narrow));
    case DType::kE8M0:
      return decode_e8m0(encode_e8m0(narrow, E8m0Round::kDown));
    case DType::kE4M3FN: {
      const auto level = static_cast<float>(
          std::clamp(scale / static_cast<double>(global), static_cast<double>(kSmallestE4m3), kLargestE4m3));
      return decode_e4m3(encode_e4m3(level)) * global;
    }
    default:
      return narrow;
  }
}

std::vector<float> written_scales(const GridFormat& format, const Grid& grid) {
  std::vector<float> written = grid.scales;
  if (format.scales == DType::kE4M3FN)
    for (float& scale : written) scale = decode_e4m3(encode_e4m3(scale / grid.global));
  return written;
}

Grid amax_grid(const GridFormat& format, const RowShape& shape, const float* weight, ThreadPool& pool) {
  GridSearch options;
  options.search = false;
  return choose_grid(format, shape, weight, options, pool);
}

void encode(const GridFormat& format, const RowShape& shape, const Grid& grid, const float* weight,
            std::uint8_t* codes, ThreadPool& pool) {
  const FormatInfo& info = info_of(format);
  const std::uint8_t mask = static_cast<std::uint8_t>((1u << std::min(info.bits, 8)) - 1);
  const double low = format.lowest_code(), high = format.largest_code();
  pool.parallel_for(shape.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for_groups(format, shape, begin, end, [&](std::int64_t g, std::int64_t at, std::int64_t n) {
      const float scale = grid.scales[static_cast<std::size_t>(g)];
      const double zero = grid.zero_points.empty() ? 0 : grid.zero_points[static_cast<std::size_t>(g)];
      for (std::int64_t k = at; k < at + n; ++k) {
        const float quotient = weight[k] / scale;
        if (info.is_integer()) {
          const double code = std::clamp(std::nearbyint(static_cast<double>(quotient)) + zero, low, high);
          codes[k] = static_cast<std::uint8_t>(static_cast<int>(code)) & mask;
        } else {
          info.encode(&quotient, codes + k, 1);
        }
      }
    });
  });
}

void decode(const GridFormat& format, const RowShape& shape, const Grid& grid, const std::uint8_t* codes,
            float* weight, ThreadPool& pool) {
  const FormatInfo& info = info_of(format);
  pool.parallel_for(shape.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for_groups(format, shape, begin, end, [&](std::int64_t g, std::int64_t at, std::int64_t n) {
      const float scale = grid.scales[static_cast<std::size_t>(g)];
      const float zero =
          grid.zero_points.empty() ? 0 : static_cast<float>(grid.zero_points[static_cast<std::size_t>(g)]);
      for (std::int64_t k = at; k < at + n; ++k) {
        float value = 0;
        info.decode(codes + k, &value, 1);
        weight[k] = (value - zero) * scale;
      }
    });
  });
}

}  // namespace pare::quant
