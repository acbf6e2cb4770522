// 3x3 convolution of stride 1 by Winograd's minimal filtering F(4x4, 3x3): an output tile of 4x4 takes 36
// products a pair of channels instead of 144.
//
// Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015:
//   Y = A' [ sum over c of (G g G') * (B' d B) ] A
// with d the 6x6 input tile, g the 3x3 kernel, Y the 4x4 output tile, and * by elements. The matrices follow
// from the interpolation points 0, 3/4, -3/4, 3/2, -3/2, infinity: with them the error is a third of that of
// the usual points 0, +-1, +-2. Their entries are exact in float32 but those of G, whose products are taken
// in double and rounded once.
//
// Error, measured on 128 channels of rectified normal data: rms 8.5e-7 of the rms of the result, twice that
// of the plain sum. Worst case: |error| <= (C + 24) eps 752 max|d| sum over c of max|g[c]| with eps = 2^-24;
// 752 is the square of the largest entry of |A'| (|G| 1 * |B'| 1), what the transforms can do to magnitudes.
//
// The sum over c is one chain in ascending order (gemm_f32.h), the transforms are fixed expressions. So the
// bits depend on the position in the image only.
#pragma once

#include <cstdint>

#include "engine/ops/conv/conv.h"
#include "engine/ops/simd.h"

namespace pare {

constexpr std::int64_t kWinogradTile = 4, kWinogradPoints = 36;

struct WinogradPlan {
  ConvGeometry geometry;
  Activation act;
  std::int64_t tiles_y = 0, tiles_x = 0;
  const float* zeros = nullptr;  // C of them

  std::int64_t tiles() const { return geometry.n * tiles_y * tiles_x; }
};

// "" or why Winograd's tiles do not suit a call; depends on everything but the batch.
std::string winograd_why_not(const OpCall& call, WinogradPlan& plan);

// g (3x3, row-major) to its 36 values, in double.
void winograd_kernel_transform(const float* g, double* out);

// One thread's share: tiles [begin, end), counted over n, y, x.
struct WinogradTask {
  const WinogradPlan* plan = nullptr;
  std::int64_t begin = 0, end = 0;
  float* inputs = nullptr;  // [36][end - begin][C], the 36 planes input_plane floats apart
  std::int64_t input_plane = 0;
};

// Fills task.inputs from x.
PARE_SIMD_DECLARE(void winograd_inputs(const WinogradTask& task, const float* x))

struct WinogradOutput {
  const float* weights = nullptr;  // packed [36][C][width] of one panel of output channels
  std::int64_t first = 0;          // its first channel
  std::int64_t width = 0;          // its channels
  float* products = nullptr;       // [36][end - begin][gemm_panel()], planes product_plane apart
  std::int64_t product_plane = 0;
  const float* bias = nullptr;      // [M] or none
  const float* residual = nullptr;  // like y, or none
  float* y = nullptr;
};

// The products and the output transform of one panel for the tiles of `task`.
PARE_SIMD_DECLARE(void winograd_outputs(const WinogradTask& task, const WinogradOutput& out))

}  // namespace pare
