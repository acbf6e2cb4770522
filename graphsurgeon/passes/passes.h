// The passes of `surgeon simplify`, each in a file of its name. All keep the function up to float rounding;
// what is not exact says so here.
#pragma once

#include <span>

#include "graphsurgeon/passes/edit.h"
#include "graphsurgeon/passes/pass.h"

namespace pare {

//   Shape(x), Size(x), and arithmetic on them          a constant, where the sizes are known
//   Reshape(x, computed), Expand(x, computed)          Reshape(x, constant with 0 and one -1), where that
//   says the same
extern const Pass kFoldShapes;

//   op(constants)                                      a constant, computed by the engine's kernels
// Not: random operators, Quantize/DequantizeLinear, what grows the model beyond PassContext's limits.
extern const Pass kFoldConstants;

//   a constant that a subgraph captures                the subgraph's own constant, in the same memory
// So that what other passes and quantization do with constants they do inside as well.
extern const Pass kPullInConstants;

//   If(constant, then, else)                           the branch taken, in place
extern const Pass kInlineIf;

//   Identity, Dropout, and Cast, Reshape, Transpose, Slice, Pad, Concat, Flatten, Expand, Squeeze, Sum, Max,
//   Min, Mean, Split, Tile that change nothing; x * 1, x / 1, x - 0, x ^ 1
extern const Pass kRemoveIdentity;

//   BatchNormalization(Conv(x, W, b))                  Conv(x, W * s, (b - mean) * s + beta),  s = gamma /
//   sqrt(var + eps) the same behind ConvTranspose and Gemm
// In double, rounded once; not exact: rounding moves from the activations to the weights. Left alone where
// a folded weight would not be finite.
extern const Pass kFoldBatchNormalization;

//   Conv(x, W, b) * s, / s, + t, - t, t - Conv         one Conv, ConvTranspose or Gemm; s and t one number a
//   channel
// As exact as kFoldBatchNormalization.
extern const Pass kFoldChannelArithmetic;

//   Conv(Pad(x, zeros))                                Conv(x) with larger pads
extern const Pass kFoldPad;

//   Transpose(Transpose(x)), Reshape(Reshape(x)), Squeeze/Unsqueeze of each other, Cast(Cast(x)) where the
//   first Cast loses nothing                                 one node
extern const Pass kMergeAdjacent;

//   constants with equal type, shape and bytes         one constant
extern const Pass kMergeConstants;

//   nodes with equal operator, attributes and inputs   one node; never random ones, never graph outputs
extern const Pass kMergeEqualNodes;

//   nodes that no output needs, captures that no subgraph reads   nothing
extern const Pass kRemoveDeadCode;

// All of them, in the order in which simplify runs them.
std::span<const Pass* const> simplify_passes();

}  // namespace pare
