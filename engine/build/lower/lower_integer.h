// Q/DQ around Conv, Gemm and MatMul become integer kernels:
//
//   DequantizeLinear(x codes), DequantizeLinear(w codes) [, bias] -> Conv | Gemm | MatMul
//     [-> Add residual] [-> activation] [-> QuantizeLinear]
//   becomes pare.QConv (channels-last, between ToChannelsLast and ToPlain) or pare.QMatMul.
//
// Taken when x and w are int8 or uint8 with one constant scale (w: one an output channel, too), zero points
// are constant, w of a convolution is constant (as codes, or as float32 behind a QuantizeLinear), and no sum
// can leave int32. A bias that is DequantizeLinear(int32) enters as the float32 that it stands for, as in the
// float graph. A residual that is dequantized enters as codes. The integer graph and the fake-quantized
// float graph differ by the rounding of float sums only; engine/ops/integer/qfinish.h gives the bound.
//
// Everything else stays as it is and runs in float on fake-quantized values; the report says why.
#pragma once

#include <vector>

#include "engine/build/lower/lowering.h"
#include "engine/build/lower/realized.h"

namespace pare::lowering {

struct IntegerOptions {
  bool rewrite = true;  // false: only say what was requested; everything is realized in float
  bool fuse = true;     // residual, activation and QuantizeLinear move into the kernel
  // For the tensor cores of a GPU: E4M3 by E4M3 is taken as well, with float32 sums; not taken, with the
  // reason, are uint8 weights, zero points of weights, products of two activations, convolutions along one
  // axis, and padding with a zero point that is not 0.
  bool tensor_cores = false;
};

// Runs before constants are folded (a folded weight has lost its codes), on plain layouts with shapes
// inferred. One row a Conv, ConvTranspose, Gemm or MatMul with a DequantizeLinear in front of x or w, in
// graph order.
std::vector<Realized> lower_integer(Graph& graph, const Kept& kept, const IntegerOptions& options = {});

}  // namespace pare::lowering
