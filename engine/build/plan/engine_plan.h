// The plan of an engine: what a device has to do, in order, before anyone has said with which kernels.
//
//   tensor   dense memory: an input, an output, a weight or an intermediate value, in the type in which it is
//   stored view     how a layer walks a tensor: sizes and strides in elements, so that transposes, slices,
//   squeezes and
//            broadcasts cost nothing
//   program  a pointwise DAG in float32 over views; one generated kernel, or the way into a row kernel
//   layer    one fused piece of work, usually one kernel
//
// All sizes are numbers: a plan belongs to one shape of the inputs. Nothing in it knows a device.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/base/tensor.h"
#include "engine/build/lower/realized.h"
#include "engine/ops/activation.h"
#include "engine/ops/conv/conv.h"

namespace pare {

enum class PlanRole : std::uint8_t { kInput, kOutput, kWeight, kActivation };

struct PlanTensor {
  std::string name;
  DType dtype = DType::kUndefined;
  Dims dims;
  PlanRole role = PlanRole::kActivation;
  Tensor data;       // weights
  std::string hash;  // of their bytes (hex SHA-256): what has one hash is stored once, here and on a device
  std::int64_t offset = 0;  // activations: in the arena; weights: in the weight block; else unused
  std::int64_t bytes() const { return byte_count(dtype, dims); }
};

struct PlanView {
  int tensor = -1;  // -1: absent
  Dims dims, strides;
  std::int64_t offset = 0;  // all in elements
  bool present() const { return tensor >= 0; }
};

// A value that a program reads. Outside of [lo, hi) on `range_axis` it is 0 and memory is not touched; the
// view then counts that axis from lo. With `index` (another leaf, of integers) the view has one more stride:
// rows of a table.
struct ProgramLeaf {
  int input = 0;  // which input of the layer
  int range_axis = -1;
  std::int64_t lo = 0, hi = 0;
  int index = -1;  // leaf that gives the row; negative rows count from the end
  std::int64_t index_stride = 0, index_rows = 0;
};

// One step. `op` is "leaf" (n = which leaf), "const" (x), or the name of an ONNX operator with its parameters
// in x, y, z; engine/build/plan/program.h has the list and its arithmetic.
struct ProgramStep {
  std::string op;
  std::vector<int> args;  // earlier steps
  int n = 0;
  double x = 0, y = 0, z = 0;
};

struct Program {
  Dims dims;  // the iteration space; leaves and results have these sizes
  std::vector<ProgramLeaf> leaves;
  std::vector<ProgramStep> steps;
  std::vector<int> results;  // the step that each output of the layer takes
  bool empty() const { return steps.empty(); }
};

enum class LayerKind : std::uint8_t { kConv, kGemm, kAttention, kPointwise, kRows, kPool };
const char* name(LayerKind kind);  // "conv", "gemm", ...

// What follows the sums of a convolution or product, in float32:
//   v = alpha * sum [* scale[column]] [+ bias[column]]; v += r_scale * residual; v = act(v)
//   stored as it is, or, when the output is 8 bit, v / y_scale rounded to even, plus y_zero, and saturated.
// With normalized rows (slots below) the first line is v = alpha / deviation * (sum - mean *
// columns[column]), and the residual is (residual - mean) / deviation * gamma + beta.
struct Epilogue {
  float alpha = 1, r_scale = 1, y_scale = 1, y_zero = 0;
  Activation act;
  bool identity() const;  // no activation
  bool relu() const;
};

// Slots of convolutions and products; absent ones have tensor -1 or are not there at all. Sums of rows are
// float32 [rows, columns / 32, 2]: sum and sum of squared deviations from the mean of each piece of 32
// columns.
enum LinearSlot : std::size_t {
  kNormStats = 5,  // sums of x's rows: x is normalized (epsilon) on its way into the product ...
  kNormColumns,    // ... whose weight sums by column these are
  kResidualStats,  // the same for the residual (r_epsilon), with gamma and beta
  kResidualGamma,
  kResidualBeta,
  kYScales,  // 1 / step of the output's codes, one a column, instead of y_scale; a float output holds int8
             // codes in the columns where this is not 0
  kShortX,   // Shortcut: [N,H,W,C] dense, its weight [M,1,1,C], bias and scale [M]
  kShortW,
  kShortBias,
  kShortScale,
  kLinearSlots
};

// in: 0 x, 1 w, 2 bias, 3 residual, 4 scale, then LinearSlot. out: y, perhaps the sums of its rows or codes.
//   conv  x [N,H,W,C], w [M,kH,kW,C/group], residual and y [N,OH,OW,M], all dense
//   gemm  y[b,m,n] = sum over k of x[b,m,k] * w[b,n,k], views of rank 3; w, x of stride 1 in k unless w is
//         plain [k,n]; bias, scale [n]. One that stands for a 1x1 convolution has its sizes in `conv` (n > 0)
//   attention  in: 0 q [B,H,S,D], 1 k [B,G,T,D], 2 v [B,G,T,E], 3 mask, broadcast to [B,H,S,T]; y [B,H,S,E];
//         p = softmax(alpha * q k + mask); y = r_scale * p v. G divides H. `post` is done to p, whose rows it
//         divides by their sum first; 8 bit q, k, v are codes, alpha and r_scale hold their scales; 8 bit y
//         by y_scale, y_zero
//   rows  a program, then along the last axis what `op` says, then scale and bias over the columns:
//         in: leaves of the program, then scale, then bias. Outputs: result, then the program's results, then
//         a copy in codes
//   pool  x [N,H,W,C], y [N,OH,OW,C]; op "MaxPool", "AveragePool", "AveragePool+pads" (pads count), window in
//   conv; floats may come out as codes, by y_scale and y_zero
// A product (kGemm) whose residual is a 1x1 convolution of its own, which nobody else reads:
//   residual = alpha * sum [* scale[column]] [+ bias[column]], rounded to `type` (codes: by y_scale, y_zero)
struct Shortcut {
  ConvGeometry conv;  // n = 0: there is none
  float alpha = 1, y_scale = 1, y_zero = 0;
  DType type = DType::kUndefined;
};

struct PlanLayer {
  LayerKind kind = LayerKind::kPointwise;
  std::string name;                // of the node that it is built around
  std::vector<std::string> nodes;  // every node of the lowered graph that it stands for
  std::vector<PlanView> in, out;
  ConvGeometry conv;
  Epilogue epilogue;
  Shortcut shortcut;
  Program program;
  std::string op;        // rows, pool
  double epsilon = 0;    // rows; products that normalize
  double r_epsilon = 0;  // of the residual
  // Convolutions, products and rows: the last output is out 0 once more, as 8 bit codes (before it is rounded
  // to its own type). 0: there is none.
  double copy_scale = 0, copy_zero = 0;
  bool nan_zero = false;          // attention: a row without any unmasked key is 0, not NaN
  std::vector<ProgramStep> post;  // rows: steps of one argument, one after the other, at the end

  std::string requested, realized, why;  // precision
  std::string tactic;                    // chosen by the device's builder
  double microseconds = 0;
  std::int64_t workspace = 0;
  int kernels = 1;
};

struct EnginePlan {
  std::vector<PlanTensor> tensors;
  std::vector<PlanLayer> layers;
  std::vector<int> inputs, outputs;  // tensors
  std::vector<Realized> realized;    // a row for each node that was asked for a low precision
  std::string precision;             // "float16", ...
  std::int64_t arena_bytes = 0, weight_bytes = 0, workspace_bytes = 0;
  std::map<std::string, Tensor> binaries;  // compiled kernels (uint8) by the hash of their text
};

bool has_shortcut(const PlanLayer& layer);
PlanLayer shortcut_layer(const PlanLayer& layer);  // the shortcut as a convolution of its own; no output
bool copies_codes(const PlanLayer& layer);         // the last output is a copy in codes
bool leaves_sums(const PlanLayer& layer);          // a product that leaves sums of its rows
bool normalizes(const PlanLayer& layer);  // a product of normalized rows, or with a normalized residual
PlanView whole(const EnginePlan& plan, int tensor);  // contiguous view of a tensor
Dims dense_strides(const Dims& dims);
bool is_dense(const PlanView& view);

void hash_weights(EnginePlan& plan);  // those that have no hash yet
int count_kernels(const EnginePlan& plan);
// Indices, sizes, views and steps of a plan that was read; Error kBadFile naming `what` and the layer.
void check_plan(const EnginePlan& plan, const std::string& what);
// One line a layer: number, kind, name, shapes, types, tactic.
std::string to_text(const EnginePlan& plan);

}  // namespace pare
