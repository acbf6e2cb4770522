#include <algorithm>

#include "engine/ops/activation_simd.h"
#include "engine/ops/conv/conv_winograd.h"
#include "engine/ops/matmul/gemm_f32.h"

namespace pare::PARE_SIMD {
namespace {

constexpr int kLanes = F32::kLanes;
constexpr float kA = 0.75f, kB = 1.5f;  // the points are 0, +-kA, +-kB, infinity; all products are exact
constexpr float kA2 = kA * kA, kB2 = kB * kB;

// B' d
PARE_INLINE void transform_input(const F32* d, F32* out) {
  const F32 a = F32::set(kA), b = F32::set(kB), a2 = F32::set(kA2), b2 = F32::set(kB2);
  const F32 sum = F32::set(kA2 + kB2), product = F32::set(kA2 * kB2);
  const F32 even_a = fnma(b2, d[2], d[4]), odd_a = fnma(b2, d[1], d[3]);
  const F32 even_b = fnma(a2, d[2], d[4]), odd_b = fnma(a2, d[1], d[3]);
  out[0] = fma(product, d[0], fnma(sum, d[2], d[4]));
  out[1] = fma(a, odd_a, even_a);
  out[2] = fnma(a, odd_a, even_a);
  out[3] = fma(b, odd_b, even_b);
  out[4] = fnma(b, odd_b, even_b);
  out[5] = fma(product, d[1], fnma(sum, d[3], d[5]));
}

// A' m
PARE_INLINE void transform_output(const F32* m, F32* out) {
  const F32 sum_a = m[1] + m[2], difference_a = m[1] - m[2];
  const F32 sum_b = m[3] + m[4], difference_b = m[3] - m[4];
  out[0] = m[0] + sum_a + sum_b;
  out[1] = fma(F32::set(kB), difference_b, F32::set(kA) * difference_a);
  out[2] = fma(F32::set(kB2), sum_b, F32::set(kA2) * sum_a);
  out[3] = fma(F32::set(kB2 * kB), difference_b, fma(F32::set(kA2 * kA), difference_a, m[5]));
}

struct TilePlace {
  std::int64_t n, y, x;
};

TilePlace place(const WinogradPlan& plan, std::int64_t tile) {
  return {tile / (plan.tiles_y * plan.tiles_x), tile / plan.tiles_x % plan.tiles_y, tile % plan.tiles_x};
}

// One vector of channels; at(i, j) points to input row i, column j of the tile.
template <typename At>
PARE_INLINE void input_vector(At at, std::int64_t c, int lanes, float* out, std::int64_t plane) {
  F32 columns[6][6];
  PARE_UNROLL for (int j = 0; j < 6; ++j) {
    F32 d[6], t[6];
    PARE_UNROLL for (int i = 0; i < 6; ++i) d[i] =
        lanes == kLanes ? F32::load(at(i, j) + c) : F32::load(at(i, j) + c, lanes);
    transform_input(d, t);
    PARE_UNROLL for (int i = 0; i < 6; ++i) columns[i][j] = t[i];
  }
  PARE_UNROLL for (int i = 0; i < 6; ++i) {
    F32 t[6];
    transform_input(columns[i], t);
    PARE_UNROLL for (int j = 0; j < 6; ++j) {
      float* to = out + (i * 6 + j) * plane + c;
      if (lanes == kLanes)
        t[j].store(to);
      else
        t[j].store(to, lanes);
    }
  }
}

template <typename At>
PARE_INLINE void input_tile(At at, std::int64_t channels, float* out, std::int64_t plane) {
  std::int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) input_vector(at, c, kLanes, out, plane);
  if (c < channels) input_vector(at, c, static_cast<int>(channels - c), out, plane);
}

struct OutputPlace {
  float* y;                    // of the tile's first position
  const float* residual;       // the same, or none
  std::int64_t rows, columns;  // positions inside of the map, at most 4
};

// One vector of output channels of one tile.
PARE_INLINE void output_vector(const WinogradOutput& out, const ConvGeometry& g, const Activation& act,
                               const OutputPlace& at, const float* products, std::int64_t c, int lanes) {
  F32 rows[4][6];
  PARE_UNROLL for (int j = 0; j < 6; ++j) {
    F32 m[6], t[4];
    PARE_UNROLL for (int i = 0; i < 6; ++i) m[i] = F32::load(products + (i * 6 + j) * out.product_plane + c);
    transform_output(m, t);
    PARE_UNROLL for (int i = 0; i < 4; ++i) rows[i][j] = t[i];
  }
  const F32 bias = out.bias == nullptr ? F32::zero() : F32::load(out.bias + out.first + c, lanes);
  const F32 lo = F32::set(act.lo), hi = F32::set(act.hi);
  PARE_UNROLL for (int i = 0; i < 4; ++i) {
    if (i >= at.rows) break;
    F32 t[4];
    transform_output(rows[i], t);
    PARE_UNROLL for (int j = 0; j < 4; ++j) {
      if (j >= at.columns) break;
      const std::int64_t offset = (i * g.ow + j) * g.m + c;
      F32 value = t[j] + bias;
      if (lanes == kLanes) {
        if (at.residual != nullptr) value = value + F32::load(at.residual + offset);
        clip(value, lo, hi).store(at.y + offset);
      } else {
        if (at.residual != nullptr) value = value + F32::load(at.residual + offset, lanes);
        clip(value, lo, hi).store(at.y + offset, lanes);
      }
    }
  }
}

}  // namespace

void winograd_inputs(const WinogradTask& task, const float* x) {
  const WinogradPlan& plan = *task.plan;
  const ConvGeometry& g = plan.geometry;
  for (std::int64_t tile = task.begin; tile < task.end; ++tile) {
    const TilePlace p = place(plan, tile);
    const std::int64_t y0 = p.y * kWinogradTile - g.top, x0 = p.x * kWinogradTile - g.left;
    const float* image = x + p.n * g.h * g.w * g.c;
    float* out = task.inputs + (tile - task.begin) * g.c;
    if (y0 >= 0 && x0 >= 0 && y0 + 6 <= g.h && x0 + 6 <= g.w) {
      const float* base = image + (y0 * g.w + x0) * g.c;
      const std::int64_t row = g.w * g.c, column = g.c;
      input_tile([=](int i, int j) { return base + i * row + j * column; }, g.c, out, task.input_plane);
    } else {
      const float* pixels[36];
      for (int i = 0; i < 6; ++i)
        for (int j = 0; j < 6; ++j) {
          const std::int64_t iy = y0 + i, ix = x0 + j;
          const bool inside = iy >= 0 && iy < g.h && ix >= 0 && ix < g.w;
          pixels[i * 6 + j] = inside ? image + (iy * g.w + ix) * g.c : plan.zeros;
        }
      input_tile([&](int i, int j) { return pixels[i * 6 + j]; }, g.c, out, task.input_plane);
    }
  }
}

void winograd_outputs(const WinogradTask& task, const WinogradOutput& out) {
  const WinogradPlan& plan = *task.plan;
  const ConvGeometry& g = plan.geometry;
  const std::int64_t tiles = task.end - task.begin, panel = gemm_f32_panel();
  const std::int64_t weights = gemm_f32_packed_floats(g.c, out.width);
  GemmTask product;
  product.lda = product.k = g.c;
  product.m = tiles;
  product.n = out.width;
  product.ldc = panel;
  product.panel_end = 1;
  for (std::int64_t f = 0; f < kWinogradPoints; ++f) {
    product.a = task.inputs + f * task.input_plane;
    product.b = out.weights + f * weights;
    product.c = out.products + f * out.product_plane;
    gemm_f32_task(product);
  }
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const TilePlace p = place(plan, task.begin + tile);
    const std::int64_t oy = p.y * kWinogradTile, ox = p.x * kWinogradTile;
    const std::int64_t first = ((p.n * g.oh + oy) * g.ow + ox) * g.m + out.first;
    const OutputPlace at{out.y + first, out.residual == nullptr ? nullptr : out.residual + first,
                         std::min(kWinogradTile, g.oh - oy), std::min(kWinogradTile, g.ow - ox)};
    const float* products = out.products + tile * panel;
    std::int64_t c = 0;
    for (; c + kLanes <= out.width; c += kLanes) output_vector(out, g, plan.act, at, products, c, kLanes);
    if (c < out.width) output_vector(out, g, plan.act, at, products, c, static_cast<int>(out.width - c));
    if (plan.act.kind == Activation::Kind::kClip) continue;
    for (std::int64_t i = 0; i < at.rows; ++i)
      for (std::int64_t j = 0; j < at.columns; ++j)
        activate_floats(plan.act, at.y + (i * g.ow + j) * g.m, out.width);
  }
}

}  // namespace pare::PARE_SIMD
