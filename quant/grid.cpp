#include "quant/grid.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/numeric/bf16.h"
#include "engine/numeric/e4m3.h"
#include "engine/numeric/e8m0.h"
#include "engine/numeric/f16.h"
#include "engine/numeric/table.h"

namespace pare::quant {
namespace {

constexpr double kLargestE4m3 = 448;
constexpr float kSmallestE4m3 = 0x1p-9f;

const FormatInfo& info_of(const GridFormat& format) { return format_info(format.codes); }

// Exponent of the largest finite value: 2 for E2M1 (6), 8 for E4M3 (448), 15 for E5M2.
int largest_exponent(const FormatInfo& info) { return std::ilogb(info.largest); }

struct Extremes {
  float low = 0, high = 0;  // extended to hold 0
  double amax() const { return std::max(-static_cast<double>(low), static_cast<double>(high)); }
};

Extremes extremes(const float* w, std::int64_t n) {
  Extremes e;
  for (std::int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(w[i])) fail(ErrorCode::kBadFile, "a weight is NaN or infinite");
    e.low = std::min(e.low, w[i]);
    e.high = std::max(e.high, w[i]);
  }
  return e;
}

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

double amax_scale(const GridFormat& format, const Extremes& e) {
  const FormatInfo& info = info_of(format);
  if (format.scales == DType::kE8M0) return std::ldexp(1.0, std::ilogb(e.amax()) - largest_exponent(info));
  if (!format.symmetric)
    return (static_cast<double>(e.high) - static_cast<double>(e.low)) /
           (format.largest_code() - format.lowest_code());
  return e.amax() / format.largest_code();
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

void amax_choice(const GridFormat& format, float low, float high, float global, float* scale, int* zero) {
  const Extremes e{low, high};
  *scale = e.amax() > 0 ? round_scale(format, amax_scale(format, e), global) : 0;
  if (!std::isnormal(*scale)) *scale = format.scales == DType::kE4M3FN ? global : 1;
  if (format.symmetric) return;
  const double code = std::nearbyint(format.lowest_code() - static_cast<double>(low / *scale));
  *zero = static_cast<int>(std::clamp(code, format.lowest_code(), format.largest_code()));
}

Grid amax_grid(const GridFormat& format, const RowShape& shape, const float* weight, ThreadPool& pool) {
  Grid grid;
  const auto count = static_cast<std::size_t>(shape.rows * groups_of(format, shape));
  grid.scales.resize(count);
  if (!format.symmetric) grid.zero_points.resize(count);
  if (format.scales == DType::kE4M3FN) {
    const double amax = extremes(weight, shape.count()).amax();
    grid.global = static_cast<float>(amax / (info_of(format).largest * kLargestE4m3));
    if (!std::isnormal(grid.global)) grid.global = 1;
  }
  pool.parallel_for(shape.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for_groups(format, shape, begin, end, [&](std::int64_t g, std::int64_t at, std::int64_t n) {
      const Extremes e = extremes(weight + at, n);
      const auto i = static_cast<std::size_t>(g);
      int zero = 0;
      amax_choice(format, e.low, e.high, grid.global, &grid.scales[i], &zero);
      if (!format.symmetric) grid.zero_points[i] = zero;
    });
  });
  return grid;
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
