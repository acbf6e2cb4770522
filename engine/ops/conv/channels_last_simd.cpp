#include <algorithm>

#include "engine/ops/conv/channels_last.h"
#include "engine/ops/transpose8.h"

namespace pare::PARE_SIMD {
namespace {

constexpr int kLanes = F32::kLanes;

PARE_INLINE F32 load_lanes(const float* p, int lanes) {
  return lanes == kLanes ? F32::load(p) : F32::load(p, lanes);
}

// The larger one; NaN when either is (max gives its second operand then).
PARE_INLINE F32 larger(F32 a, F32 b) { return select(is_nan(a), a, max(a, b)); }

// Taps of an output position that lie inside: [first, last) along one axis.
struct Range {
  std::int64_t first, last;
};

Range inside(std::int64_t origin, std::int64_t taps, std::int64_t dilation, std::int64_t size) {
  std::int64_t first = 0, last = taps;
  while (first < taps && origin + first * dilation < 0) ++first;
  while (last > first && origin + (last - 1) * dilation >= size) --last;
  return {first, last};
}

}  // namespace

void pool_lines(const PoolGeometry& g, const float* x, float* y, std::int64_t begin, std::int64_t end) {
  for (std::int64_t line = begin; line < end; ++line) {
    const std::int64_t n = line / g.oh, y0 = line % g.oh * g.sh - g.top;
    const float* image = x + n * g.h * g.w * g.c;
    const Range rows = inside(y0, g.kh, g.dh, g.h),
                padded_rows = inside(y0 + g.top, g.kh, g.dh, g.h + g.top + g.bottom);
    float* out = y + line * g.ow * g.c;
    for (std::int64_t ox = 0; ox < g.ow; ++ox, out += g.c) {
      const std::int64_t x0 = ox * g.sw - g.left;
      const Range columns = inside(x0, g.kw, g.dw, g.w);
      const Range padded = inside(x0 + g.left, g.kw, g.dw, g.w + g.left + g.right);
      const std::int64_t count = g.count_pad
                                     ? (padded_rows.last - padded_rows.first) * (padded.last - padded.first)
                                     : (rows.last - rows.first) * (columns.last - columns.first);
      const F32 divisor = F32::set(static_cast<float>(count));
      for (std::int64_t c = 0; c < g.c; c += kLanes) {
        const int lanes = static_cast<int>(std::min<std::int64_t>(kLanes, g.c - c));
        F32 value = g.max ? F32::set(-std::numeric_limits<float>::infinity()) : F32::zero();
        for (std::int64_t ky = rows.first; ky < rows.last; ++ky) {
          const float* p = image + ((y0 + ky * g.dh) * g.w + x0) * g.c + c;
          for (std::int64_t kx = columns.first; kx < columns.last; ++kx) {
            const F32 v = load_lanes(p + kx * g.dw * g.c, lanes);
            value = g.max ? larger(value, v) : value + v;
          }
        }
        if (!g.max) value = value / divisor;
        if (lanes == kLanes)
          value.store(out + c);
        else
          value.store(out + c, lanes);
      }
    }
  }
}

void transpose_words(const std::uint32_t* from, std::int64_t from_stride, std::uint32_t* to,
                     std::int64_t to_stride, std::int64_t rows, std::int64_t columns) {
  // Blocks of columns, so that the lines written to stay in cache while all rows pass by.
  constexpr std::int64_t kBlock = 32;
  for (std::int64_t first = 0; first < columns; first += kBlock) {
    const std::int64_t last = std::min(columns, first + kBlock);
    std::int64_t i = 0;
#if PARE_SIMD_LEVEL >= 1
    for (; i + 8 <= rows; i += 8) {
      std::int64_t j = first;
      for (; j + 8 <= last; j += 8)
        transpose8(reinterpret_cast<const float*>(from + i * from_stride + j), from_stride,
                   reinterpret_cast<float*>(to + j * to_stride + i), to_stride);
      for (; j < last; ++j)
        for (std::int64_t r = i; r < i + 8; ++r) to[j * to_stride + r] = from[r * from_stride + j];
    }
#endif
    for (; i < rows; ++i)
      for (std::int64_t j = first; j < last; ++j) to[j * to_stride + i] = from[i * from_stride + j];
  }
}

}  // namespace pare::PARE_SIMD
