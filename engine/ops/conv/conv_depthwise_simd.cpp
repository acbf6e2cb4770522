#include <algorithm>

#include "engine/ops/activation_simd.h"
#include "engine/ops/conv/conv_depthwise.h"

namespace pare::PARE_SIMD {
namespace {

constexpr int kLanes = F32::kLanes;

// What stands at input row iy, column ix of image n.
PARE_INLINE const float* pixel(const DepthwiseTask& task, std::int64_t n, std::int64_t iy, std::int64_t ix) {
  const ConvGeometry& g = *task.geometry;
  if (iy < 0 || iy >= g.h || ix < 0 || ix >= g.w) return task.zeros;
  return task.x + ((n * g.h + iy) * g.w + ix) * g.c;
}

PARE_INLINE F32 load_lanes(const float* p, int lanes) {
  return lanes == kLanes ? F32::load(p) : F32::load(p, lanes);
}

PARE_INLINE void finish(const DepthwiseTask& task, F32 value, std::int64_t at, std::int64_t c, int lanes) {
  if (task.bias != nullptr) value = value + load_lanes(task.bias + c, lanes);
  if (task.residual != nullptr) value = value + load_lanes(task.residual + at + c, lanes);
  value = clip(value, F32::set(task.act->lo), F32::set(task.act->hi));
  if (lanes == kLanes)
    value.store(task.y + at + c);
  else
    value.store(task.y + at + c, lanes);
}

// T outputs side by side share the input columns between them. K x K taps, stride S.
template <int K, int S, int T>
PARE_INLINE void tile_vector(const DepthwiseTask& task, const float* const* pixels, std::int64_t at,
                             std::int64_t c, int lanes) {
  constexpr int kColumns = (T - 1) * S + K;
  const std::int64_t channels = task.geometry->c;
  F32 sums[T];
  PARE_UNROLL for (int t = 0; t < T; ++t) sums[t] = F32::zero();
  PARE_UNROLL for (int ky = 0; ky < K; ++ky) {
    F32 columns[kColumns];
    PARE_UNROLL for (int j = 0; j < kColumns; ++j) columns[j] =
        load_lanes(pixels[ky * kColumns + j] + c, lanes);
    PARE_UNROLL for (int kx = 0; kx < K; ++kx) {
      const F32 weight = load_lanes(task.weights + (ky * K + kx) * channels + c, lanes);
      PARE_UNROLL for (int t = 0; t < T; ++t) sums[t] = fma(columns[t * S + kx], weight, sums[t]);
    }
  }
  PARE_UNROLL for (int t = 0; t < T; ++t) finish(task, sums[t], at + t * channels, c, lanes);
}

template <int K, int S, int T>
void tile(const DepthwiseTask& task, std::int64_t n, std::int64_t oy, std::int64_t ox, std::int64_t at) {
  constexpr int kColumns = (T - 1) * S + K;
  const ConvGeometry& g = *task.geometry;
  const float* pixels[K * kColumns];
  for (int ky = 0; ky < K; ++ky)
    for (int j = 0; j < kColumns; ++j)
      pixels[ky * kColumns + j] = pixel(task, n, oy * S - g.top + ky, ox * S - g.left + j);
  std::int64_t c = 0;
  for (; c + kLanes <= g.c; c += kLanes) tile_vector<K, S, T>(task, pixels, at, c, kLanes);
  if (c < g.c) tile_vector<K, S, T>(task, pixels, at, c, static_cast<int>(g.c - c));
}

template <int K, int S>
void line(const DepthwiseTask& task, std::int64_t n, std::int64_t oy, std::int64_t at) {
  const ConvGeometry& g = *task.geometry;
  std::int64_t ox = 0;
  for (; ox + 4 <= g.ow; ox += 4) tile<K, S, 4>(task, n, oy, ox, at + ox * g.c);
  if (g.ow - ox == 3) tile<K, S, 3>(task, n, oy, ox, at + ox * g.c);
  if (g.ow - ox == 2) tile<K, S, 2>(task, n, oy, ox, at + ox * g.c);
  if (g.ow - ox == 1) tile<K, S, 1>(task, n, oy, ox, at + ox * g.c);
}

// Any kernel, stride and dilation: one output at a time.
void general_line(const DepthwiseTask& task, std::int64_t n, std::int64_t oy, std::int64_t at) {
  const ConvGeometry& g = *task.geometry;
  for (std::int64_t ox = 0; ox < g.ow; ++ox, at += g.c) {
    for (std::int64_t ky = 0; ky < g.kh; ++ky)
      for (std::int64_t kx = 0; kx < g.kw; ++kx)
        task.taps[ky * g.kw + kx] =
            pixel(task, n, oy * g.sh - g.top + ky * g.dh, ox * g.sw - g.left + kx * g.dw);
    for (std::int64_t c = 0; c < g.c; c += kLanes) {
      const int lanes = static_cast<int>(std::min<std::int64_t>(kLanes, g.c - c));
      F32 sum = F32::zero();
      for (std::int64_t tap = 0; tap < g.kh * g.kw; ++tap)
        sum =
            fma(load_lanes(task.taps[tap] + c, lanes), load_lanes(task.weights + tap * g.c + c, lanes), sum);
      finish(task, sum, at, c, lanes);
    }
  }
}

}  // namespace

void depthwise_lines(const DepthwiseTask& task, std::int64_t begin, std::int64_t end) {
  const ConvGeometry& g = *task.geometry;
  const bool square = g.kh == g.kw && g.sh == g.sw && g.dh == 1 && g.dw == 1;
  const std::int64_t size = square ? g.kh * 10 + g.sh : 0;
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t n = i / g.oh, oy = i % g.oh, at = i * g.ow * g.c;
    switch (size) {
      case 31:
        line<3, 1>(task, n, oy, at);
        break;
      case 32:
        line<3, 2>(task, n, oy, at);
        break;
      case 51:
        line<5, 1>(task, n, oy, at);
        break;
      case 52:
        line<5, 2>(task, n, oy, at);
        break;
      default:
        general_line(task, n, oy, at);
    }
    if (task.act->kind != Activation::Kind::kClip) activate_floats(*task.act, task.y + at, g.ow * g.c);
  }
}

}  // namespace pare::PARE_SIMD
