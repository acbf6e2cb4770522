// pare.QConv: convolution of 8 bit codes, channels-last, with exact sums.
//
//   x s8|u8 [N,H,W,C], w s8|u8 [M,C/group,kH,kW] constant, the other inputs as in qlinear.h
//   y [N,OH,OW,M], float32, s8 or u8
//   acc[n,oy,ox,m] = sum over kh, kw, c of (x[n, oy*sh - pt + kh*dh, ox*sw - pl + kw*dw, c] - zx) *
//                                         (w[m,c,kh,kw] - zw)
// Positions outside of x hold zx, that is, real zero. Attributes: strides, dilations [2], pads [4] (top,
// left, bottom, right), group, and those of qlinear.h. All of them have their ONNX meaning and default.
// With one spatial axis x is [N,W,C], w [M,C/group,kW], y [N,OW,M], and the attributes are half as long.
#pragma once

#include <cstdint>
#include <string>

#include "engine/ops/integer/qlinear.h"

namespace pare::qconv {

// Sizes of one call.
struct Geometry {
  std::int64_t n, h, w, c;  // x
  std::int64_t oh, ow, m;   // y
  std::int64_t kh, kw, group;
  std::int64_t sh, sw, dh, dw;  // strides, dilations
  std::int64_t top, left, bottom, right;

  std::int64_t group_c() const { return c / group; }
  std::int64_t k() const { return kh * kw * group_c(); }
};
Geometry geometry(const OpCall& call);  // after why_not
std::string why_not(const OpCall& call);

Kernel depthwise_kernel();  // one channel a group
Kernel winograd_kernel();   // 3x3, stride 1, without VNNI
Kernel gemm_kernel();       // windows gathered row by row, times packed weights
Kernel ref_kernel();

}  // namespace pare::qconv
