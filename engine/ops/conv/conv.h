// pare.Conv: float32 convolution of channels-last maps, with what follows it.
//
//   x [N,H,W,C], w [M,C/group,kH,kW], optional bias [M], optional residual and y [N,OH,OW,M]
//   y[n,oy,ox,m] = act(sum over kh, kw, c of x[n, oy*sh - top + kh*dh, ox*sw - left + kw*dw, g*C/group + c]
//                      * w[m,c,kh,kw] + bias[m] + residual[n,oy,ox,m]),   g = m / (M/group)
//
// Positions outside of x are 0. Attributes: strides, dilations [2], pads [4] (top, left, bottom, right),
// group, with their ONNX meaning and defaults, and those of activation.h.
//
// Kernels, fastest first; each result is the same for any batch, slot, number of threads and instruction
// class:
//   winograd   3x3, stride 1: fewer multiplications for more rounding (conv_winograd.h has the bound)
//   gemm_few_tiles  gemm in winograd's place where its larger weights would not pay (small batches); the one
//                   kernel whose choice, and so whose last bits, depend on the batch: it is not `invariant`
//   depthwise  one channel a group
//   gemm       windows gathered row by row, times packed weights; the sum runs over kh, kw, c in that order
//   reference  in double
#pragma once

#include <cstdint>
#include <string>

#include "engine/ops/activation.h"
#include "engine/ops/kernel.h"

namespace pare {

struct ConvGeometry {
  std::int64_t n = 0, h = 0, w = 0, c = 0;  // x
  std::int64_t oh = 0, ow = 0, m = 0;       // y
  std::int64_t kh = 0, kw = 0, group = 1;
  std::int64_t sh = 1, sw = 1, dh = 1, dw = 1;  // strides, dilations
  std::int64_t top = 0, left = 0;               // bottom and right follow from oh and ow

  std::int64_t group_c() const { return c / group; }
  std::int64_t group_m() const { return m / group; }
  std::int64_t window() const { return kh * kw * group_c(); }
  std::int64_t rows() const { return n * oh * ow; }
};

// Sizes, attributes and activation of a call of pare.Conv or pare.ConvTranspose (conv_transpose.h). "" or
// what is wrong with it.
std::string resolve_conv(const OpCall& call, ConvGeometry& geometry, Activation& activation);

// What the kernels that pack their weights share: the above, float32, constant weight.
std::string packed_conv_why_not(const OpCall& call, ConvGeometry& geometry);

Kernel conv_winograd_kernel();
Kernel conv_depthwise_kernel();
Kernel conv_few_tiles_kernel();
Kernel conv_gemm_kernel();
Kernel conv_reference_kernel();

}  // namespace pare
