#include "quant/grid/grid.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/numeric/bf16.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/e4m3.h"
#include "engine/numeric/e8m0.h"
#include "engine/numeric/f16.h"
#include "engine/numeric/table.h"
#include "quant/grid/grid_codes_simd.h"
#include "quant/grid/grid_search.h"

namespace pare::quant {
namespace {

constexpr double kLargestE4m3 = 448;
constexpr float kSmallestE4m3 = 0x1p-9f;

const FormatInfo& info_of(const GridFormat& format) { return format_info(format.codes); }

GridCodes codes_of(const GridFormat& format) {
  if (format.codes == DType::kE4M3FN) return GridCodes::kE4M3;
  if (format.codes == DType::kE5M2) return GridCodes::kE5M2;
  if (format.codes == DType::kE2M1) return GridCodes::kE2M1;
  const FormatInfo& info = info_of(format);
  if (!info.is_integer() || info.bits > 8)
    throw make_error(ErrorCode::kUnsupported, "weights cannot have codes of type {}", name(format.codes))
        .hint("`pare ops --formats` lists the formats");
  return info.is_signed ? GridCodes::kSigned : GridCodes::kUnsigned;
}

// What each byte stands for; bits beyond those of a code are ignored.
std::vector<float> values_of(DType type) {
  const unsigned mask = (1u << bits(type)) - 1;
  std::vector<float> table(256);
  for (unsigned i = 0; i < 256; ++i) {
    const auto code = static_cast<std::uint8_t>(i & mask);
    format_info(type).decode(&code, &table[i], 1);
  }
  return table;
}

// The kernels' view of a format and its scales.
struct Codec {
  GridCodes type;
  const Grid& grid;
  GridStep common;

  Codec(const GridFormat& format, const Grid& scales) : type(codes_of(format)), grid(scales) {
    common.low = static_cast<std::int32_t>(format.lowest_code());
    common.high = static_cast<std::int32_t>(format.largest_code());
    common.mask = static_cast<std::uint8_t>((1u << bits(format.codes)) - 1);
  }

  GridStep step(std::int64_t group) const {
    GridStep step = common;
    step.scale = grid.scales[static_cast<std::size_t>(group)];
    if (!grid.zero_points.empty()) step.zero = grid.zero_points[static_cast<std::size_t>(group)];
    return step;
  }
};

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
  if (format.scales == DType::kE4M3FN) {
    for (float& scale : written) scale /= grid.global;
    round_through(DType::kE4M3FN, written.data(), written.data(), static_cast<std::int64_t>(written.size()));
  }
  return written;
}

Grid amax_grid(const GridFormat& format, const RowShape& shape, const float* weight, ThreadPool& pool) {
  GridSearch options;
  options.search = false;
  return choose_grid(format, shape, weight, options, pool);
}

void encode(const GridFormat& format, const RowShape& shape, const Grid& grid, const float* weight,
            std::uint8_t* codes, ThreadPool& pool) {
  const Codec codec(format, grid);
  const auto kernel = PARE_SIMD_PICK(grid_encode_groups);
  const std::int64_t groups = groups_of(format, shape);
  const std::int64_t segment = format.group == 0 ? shape.cols : shape.segment;
  const std::int64_t width = format.group == 0 ? shape.cols : format.group;
  if (segment == 0) return;
  const std::int64_t in_segment = (segment + width - 1) / width;
  pool.parallel_for(shape.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t c = 0, g = row * groups; c < shape.cols; c += segment, g += in_segment)
        kernel(codec.type, codec.common, grid.scales.data() + g,
               grid.zero_points.empty() ? nullptr : grid.zero_points.data() + g,
               weight + row * shape.cols + c, segment, width, codes + row * shape.cols + c);
  });
}

void decode(const GridFormat& format, const RowShape& shape, const Grid& grid, const std::uint8_t* codes,
            float* weight, ThreadPool& pool) {
  const Codec codec(format, grid);
  std::vector<float> table;
  if (!info_of(format).is_integer()) table = values_of(format.codes);
  const auto integers = PARE_SIMD_PICK(grid_decode);
  const auto others = PARE_SIMD_PICK(grid_look_up);
  pool.parallel_for(shape.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for_groups(format, shape, begin, end, [&](std::int64_t g, std::int64_t at, std::int64_t n) {
      if (table.empty())
        integers(codec.type, codec.step(g), codes + at, n, weight + at);
      else
        others(table.data(), grid.scales[static_cast<std::size_t>(g)], codes + at, n, weight + at);
    });
  });
}

}  // namespace pare::quant
