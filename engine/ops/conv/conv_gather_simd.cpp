#include "engine/ops/conv/conv_gather.h"

namespace pare::PARE_SIMD {
namespace {

PARE_INLINE void copy_floats(const float* from, float* to, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + F32::kLanes <= n; i += F32::kLanes) F32::load(from + i).store(to + i);
#if PARE_SIMD_LEVEL >= 1
  for (; i + 4 <= n; i += 4) _mm_storeu_ps(to + i, _mm_loadu_ps(from + i));
#endif
  for (; i < n; ++i) to[i] = from[i];
}

PARE_INLINE void zero_floats(float* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = 0;
}

}  // namespace

void gather_windows(const ConvGeometry& g, const float* x, std::int64_t group, std::int64_t begin,
                    std::int64_t end, float* out) {
  const std::int64_t channels = g.group_c();
  const bool whole_pixels = g.group == 1 && g.dw == 1;  // the taps of one kh lie side by side in x
  const std::int64_t line_taps = g.kw * g.c;
  [[maybe_unused]] const float* x_end = x + g.n * g.h * g.w * g.c;
  std::int64_t ox = begin % g.ow, oy = begin / g.ow % g.oh, n = begin / (g.ow * g.oh);
  for (std::int64_t row = begin; row < end; ++row) {
    const float* image = x + n * g.h * g.w * g.c + group * channels;
    const std::int64_t x0 = ox * g.sw - g.left;
    for (std::int64_t ky = 0; ky < g.kh; ++ky) {
      const std::int64_t iy = oy * g.sh - g.top + ky * g.dh;
      if (iy < 0 || iy >= g.h) {
        zero_floats(out, g.kw * channels);
        out += g.kw * channels;
        continue;
      }
      const float* line = image + iy * g.w * g.c;
      if (whole_pixels && x0 >= 0 && x0 + g.kw <= g.w) {
#if PARE_SIMD_LEVEL >= 1
        // First layers: four floats at once, what is too much is overwritten by the next taps (or is slack).
        if (line_taps <= 4 && line + x0 * g.c + 4 <= x_end) {
          _mm_storeu_ps(out, _mm_loadu_ps(line + x0 * g.c));
          out += line_taps;
          continue;
        }
#endif
        copy_floats(line + x0 * g.c, out, line_taps);
        out += line_taps;
        continue;
      }
      for (std::int64_t kx = 0; kx < g.kw; ++kx, out += channels) {
        const std::int64_t ix = x0 + kx * g.dw;
        if (ix < 0 || ix >= g.w)
          zero_floats(out, channels);
        else
          copy_floats(line + ix * g.c, out, channels);
      }
    }
    if (++ox == g.ow) {
      ox = 0;
      if (++oy == g.oh) oy = 0, ++n;
    }
  }
}

}  // namespace pare::PARE_SIMD
