#include <algorithm>

#include "engine/ops/activation_simd.h"
#include "engine/ops/matmul/gemm_f32.h"
#include "engine/ops/transpose8.h"

namespace pare::PARE_SIMD {
namespace {

constexpr int kLanes = F32::kLanes;
constexpr std::int64_t kPanel = 2 * kLanes;
// Rows of a tile: accumulators, two vectors of B and one broadcast must fit into the registers.
constexpr int kRows = PARE_SIMD_LEVEL == 2 ? 12 : PARE_SIMD_LEVEL == 1 ? 6 : 4;

struct Tile {
  const float* a;
  std::int64_t lda;
  const float* b;
  std::int64_t k;
  float* c;
  std::int64_t ldc;
  int width;  // columns, at most NV * kLanes
  float alpha;
  const float* bias;
  const float* residual;
  std::int64_t ldr;
  const Activation* act;
};

// MR rows by NV vectors.
template <int MR, int NV>
void multiply_tile(const Tile& t) {
  constexpr int kGroups = (MR + 2) / 3;  // rows share base pointers by threes: p, p + lda, p + 2 lda
  F32 sums[MR][NV];
  const float* a[kGroups];
  const std::int64_t lda = t.lda;
  PARE_UNROLL for (int r = 0; r < MR; ++r) {
    PARE_UNROLL for (int v = 0; v < NV; ++v) sums[r][v] = F32::zero();
  }
  PARE_UNROLL for (int g = 0; g < kGroups; ++g) a[g] = t.a + 3 * g * lda;
  const float* b = t.b;
  for (std::int64_t k = t.k; k > 0; --k) {
    F32 columns[NV];
    PARE_UNROLL for (int v = 0; v < NV; ++v) columns[v] = F32::load(b + v * kLanes);
    PARE_UNROLL for (int r = 0; r < MR; ++r) {
      const F32 x = F32::set(a[r / 3][(r % 3) * lda]);
      PARE_UNROLL for (int v = 0; v < NV; ++v) sums[r][v] = fma(x, columns[v], sums[r][v]);
    }
    PARE_UNROLL for (int g = 0; g < kGroups; ++g) a[g] += 1;
    b += NV * kLanes;
  }

  const int last = t.width - (NV - 1) * kLanes;  // lanes of the last vector
  if (t.alpha != 1.0f) {
    const F32 alpha = F32::set(t.alpha);
    PARE_UNROLL for (int r = 0; r < MR; ++r) {
      PARE_UNROLL for (int v = 0; v < NV; ++v) sums[r][v] = alpha * sums[r][v];
    }
  }
  if (t.bias != nullptr) {
    PARE_UNROLL for (int v = 0; v < NV; ++v) {
      const F32 bias = F32::load(t.bias + v * kLanes, v == NV - 1 ? last : kLanes);
      PARE_UNROLL for (int r = 0; r < MR; ++r) sums[r][v] = sums[r][v] + bias;
    }
  }
  if (t.residual != nullptr) {
    PARE_UNROLL for (int r = 0; r < MR; ++r) {
      PARE_UNROLL for (int v = 0; v < NV; ++v) {
        const float* p = t.residual + r * t.ldr + v * kLanes;
        sums[r][v] = sums[r][v] + (v == NV - 1 ? F32::load(p, last) : F32::load(p));
      }
    }
  }
  if (t.act->kind == Activation::Kind::kHardSwish) {
    PARE_UNROLL for (int r = 0; r < MR; ++r) {
      PARE_UNROLL for (int v = 0; v < NV; ++v) sums[r][v] = hard_swish(sums[r][v]);
    }
  } else {
    const F32 lo = F32::set(t.act->lo), hi = F32::set(t.act->hi);
    PARE_UNROLL for (int r = 0; r < MR; ++r) {
      PARE_UNROLL for (int v = 0; v < NV; ++v) sums[r][v] = clip(sums[r][v], lo, hi);
    }
  }
  PARE_UNROLL for (int r = 0; r < MR; ++r) {
    PARE_UNROLL for (int v = 0; v < NV; ++v) {
      float* p = t.c + r * t.ldc + v * kLanes;
      if (v == NV - 1)
        sums[r][v].store(p, last);
      else
        sums[r][v].store(p);
    }
  }
  if (t.act->kind != Activation::Kind::kClip && t.act->kind != Activation::Kind::kHardSwish)
    activate_rows(*t.act, t.c, t.ldc, MR, t.width);
}

using TileFunction = void (*)(const Tile&);

template <int NV>
TileFunction tile_function(std::int64_t rows) {
  static constexpr TileFunction kFunctions[] = {
    multiply_tile<1, NV>,
    multiply_tile<2, NV>,
    multiply_tile<3, NV>,
    multiply_tile<4, NV>,
#if PARE_SIMD_LEVEL >= 1
    multiply_tile<5, NV>,
    multiply_tile<6, NV>,
#endif
#if PARE_SIMD_LEVEL == 2
    multiply_tile<7, NV>,
    multiply_tile<8, NV>,
    multiply_tile<9, NV>,
    multiply_tile<10, NV>,
    multiply_tile<11, NV>,
    multiply_tile<12, NV>,
#endif
  };
  return kFunctions[rows - 1];
}

// One panel from a B whose columns lie along k: packed[i * width + j] = from[j * stride_n + i].
void pack_columns(const float* from, std::int64_t stride_n, std::int64_t k, std::int64_t columns,
                  std::int64_t width, float* packed) {
  std::int64_t j = 0;
#if PARE_SIMD_LEVEL >= 1
  for (; j + 8 <= columns; j += 8) {
    std::int64_t i = 0;
    for (; i + 8 <= k; i += 8) transpose8(from + j * stride_n + i, stride_n, packed + i * width + j, width);
    for (; i < k; ++i)
      for (std::int64_t e = j; e < j + 8; ++e) packed[i * width + e] = from[e * stride_n + i];
  }
#endif
  for (; j < width; ++j)
    for (std::int64_t i = 0; i < k; ++i) packed[i * width + j] = j < columns ? from[j * stride_n + i] : 0.0f;
}

}  // namespace

std::int64_t gemm_f32_panel() { return kPanel; }

std::int64_t gemm_f32_packed_floats(std::int64_t k, std::int64_t n) {
  return k * ((n + kLanes - 1) / kLanes * kLanes);
}

void gemm_f32_pack(const float* b, std::int64_t stride_k, std::int64_t stride_n, std::int64_t k,
                   std::int64_t n, float* packed) {
  for (std::int64_t first = 0; first < n; first += kPanel) {
    const std::int64_t columns = std::min(kPanel, n - first), width = columns > kLanes ? kPanel : kLanes;
    const float* from = b + first * stride_n;
    if (stride_n == 1 && columns == width) {
      for (std::int64_t i = 0; i < k; ++i)
        for (std::int64_t j = 0; j < width; j += kLanes)
          F32::load(from + i * stride_k + j).store(packed + i * width + j);
    } else if (stride_k == 1) {
      pack_columns(from, stride_n, k, columns, width, packed);
    } else {
      for (std::int64_t i = 0; i < k; ++i)
        for (std::int64_t j = 0; j < width; ++j)
          packed[i * width + j] = j < columns ? from[i * stride_k + j * stride_n] : 0.0f;
    }
    packed += k * width;
  }
}

void gemm_f32_task(const GemmTask& task) {
  // Equal tiles rather than full ones and a thin rest: a thin tile waits for its own sums.
  const std::int64_t tiles = (task.m + kRows - 1) / kRows;
  for (std::int64_t panel = task.panel_begin; panel < task.panel_end; ++panel) {
    const std::int64_t column = panel * kPanel, width = std::min(kPanel, task.n - column);
    Tile t{nullptr,
           task.lda,
           task.b + column * task.k,
           task.k,
           nullptr,
           task.ldc,
           static_cast<int>(width),
           task.alpha,
           task.bias == nullptr ? nullptr : task.bias + column,
           nullptr,
           task.ldr,
           &task.act};
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t row = task.m * tile / tiles, rows = task.m * (tile + 1) / tiles - row;
      t.a = task.a + row * task.lda;
      t.c = task.c + row * task.ldc + column;
      t.residual = task.residual == nullptr ? nullptr : task.residual + row * task.ldr + column;
      (width > kLanes ? tile_function<2>(rows) : tile_function<1>(rows))(t);
    }
  }
}

}  // namespace pare::PARE_SIMD
