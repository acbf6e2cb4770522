// pare.ConvTranspose: float32 transposed convolution of channels-last maps, with what follows it.
//
//   x [N,H,W,C], w [C,M/group,kH,kW], optional bias [M], y [N,OH,OW,M]
//   y[n,oy,ox,m] = act(sum over kh, kw, c of x[n,iy,ix,g*C/group + c] * w[g*C/group + c,m,kh,kw] + bias[m])
//   where oy = iy*sh - top + kh*dh, ox = ix*sw - left + kw*dw
//
// Attributes: strides, dilations [2], pads [4], output_padding [2], group, with their ONNX meaning (explicit
// pads only), and those of activation.h. Results are the same for any batch, slot, number of threads and
// instruction class:
//   depthwise  one channel a group: rows of channels times rows of weights
//   rows       an output row is a few products of
//              input rows with one tap's weights each, added in place in the
//              order of kh, then kw; where the kernel's width is the stride, all of them in one product
//   reference  in double
//
// ConvTranspose/cpu:channels_last is the same on plain maps, moved there and back.
#pragma once

#include "engine/ops/kernel.h"

namespace pare {

Kernel conv_transpose_depthwise_kernel();
Kernel conv_transpose_rows_kernel();
Kernel conv_transpose_reference_kernel();

}  // namespace pare
