// The passes of `surgeon simplify`, each in a file of its name. All keep the function up to float rounding;
// what is not exact says so here.
#pragma once

#include <span>

#include "graphsurgeon/passes/edit.h"
#include "graphsurgeon/passes/pass.h"

namespace pare {

//   Shape(x), Size(x), and arithmetic on them          a constant, where the sizes are known
//   Reshape(x, computed), Expand(x, computed)          Reshape(x, constant with 0 and one -1),
//                                                      where that says the same
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

//   BatchNormalization(Conv(x, W, b));                 Conv(x, W * s, (b - mean) * s + beta)
//   the same behind ConvTranspose and Gemm             with s = gamma / sqrt(var + eps)
// In double, rounded once; not exact: rounding moves from the activations to the weights. Left alone where
// a folded weight would not be finite.
extern const Pass kFoldBatchNormalization;

//   Conv(x, W, b) * s, / s, + t, - t, t - Conv         one Conv, ConvTranspose or Gemm;
//                                                      s and t one number a channel
// As exact as kFoldBatchNormalization.
extern const Pass kFoldChannelArithmetic;

//   Conv(Pad(x, zeros)), AveragePool(Pad(x, zeros)),   without the Pad, with larger pads
//   MaxPool(Pad(x, -infinity, or zeros or less where x is never negative))
// A pool only where its own pads are counted the same, and none is as wide as the window.
extern const Pass kFoldPad;

//   Add(MatMul(a, b), c)                               Gemm(a, b, c)
// Matrices only, and c broadcasts to [m, n], certainly.
extern const Pass kFoldMatMulAdd;

//   Gemm(Transpose(a), b, c)                           Gemm(a, b, c) with transA changed; the same for b
extern const Pass kFoldTranspose;

//   Loop(constant trips, true)                         the iterations one after the other
// At most 16 trips and 256 nodes, and a body that never stops by itself.
extern const Pass kUnrollLoop;

//   Transpose(Transpose(x)), Reshape(Reshape(x)), Squeeze/Unsqueeze of each other,
//   Cast(Cast(x)) where the first loses nothing        one node
extern const Pass kMergeAdjacent;

//   Slice(Slice(x))                                    Slice(x)
// On one axis: both forwards from the front. On different axes: any.
extern const Pass kMergeSlices;

//   Concat(Concat(a, b), c)                            Concat(a, b, c)
extern const Pass kMergeConcats;

//   Reshape(Transpose(Reshape(x, [-1, m, n]), [0, 2, 1]), [.., n, m])   Transpose(x) of the last two axes
extern const Pass kMergeReshapedTranspose;

//   f(Transpose(x))                                    Transpose(f(x))
//   g(Transpose(x), Transpose(y))                      Transpose(g(x, y))
// f and g element-wise (g also with a constant). Only where two Transposes become one, or the one meets
// another further on. The value behind keeps its name and its elements.
extern const Pass kPushTransposes;

//   constants with equal type, shape and bytes         one constant
extern const Pass kMergeConstants;

//   nodes with equal domain, operator, attributes and inputs      one node
// Never random ones or ones with subgraphs; of two graph outputs each keeps its node. a + b is b + a.
extern const Pass kMergeEqualNodes;

//   nodes that no output needs, captures that no subgraph reads,
//   results of an If that nobody reads                 nothing
extern const Pass kRemoveDeadCode;

// All of the above, in the order in which simplify runs them.
std::span<const Pass* const> simplify_passes();

// --- Recognition: what exporters write out becomes the standard operator again. Behind a switch, since the
// result needs a newer opset and rounds differently (in the last bits).

//   (x - mean) / sqrt(mean((x - mean)^2) + e) * g + b  LayerNormalization, over the last axes
extern const Pass kRecognizeLayerNormalization;

//   x / sqrt(mean(x^2) + e) * g                        RMSNormalization (opset 23)
extern const Pass kRecognizeRmsNormalization;

//   x/2 * (1 + erf(x / sqrt(2))), and with tanh        Gelu (opset 20)
extern const Pass kRecognizeGelu;

//   x * sigmoid(x), x * clip(x + 3, 0, 6) / 6,
//   x * tanh(softplus(x))                              Swish (opset 24), HardSwish, Mish (opset 18)
extern const Pass kRecognizeActivations;

//   x * cos + concat(-second half, first half) * sin   RotaryEmbedding (opset 23)
extern const Pass kRecognizeRotaryEmbedding;

//   softmax(q * k^T * s + mask) * v                    Attention (opset 23)
extern const Pass kRecognizeAttention;

std::span<const Pass* const> recognize_passes();
// Both lists in the order of a run with recognition: before folding takes the patterns apart.
std::span<const Pass* const> all_passes();

}  // namespace pare
