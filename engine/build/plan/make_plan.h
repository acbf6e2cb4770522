// From a graph to the plan of an engine: lowering (lower_cpu.h), then
//
//   products of one input are packed into one (q, k, v)
//   softmax(scale q k + mask) v, whatever transposes stand around it, becomes one attention layer
//   pointwise DAGs become one program each; in front of LayerNormalization, Softmax and reductions over the
//   last axis
//     they are the way in, and a quantizer behind is the way out
//   transposes, slices, reshapes, concatenations and embeddings are strides and ranges of whoever reads them
//   a convolution of an image with few channels reads it space-to-depth: 7x7 by 2 becomes 4x4 of 12 channels
//     (padded to 16), a patch embedding becomes a product
//   weights are laid out and rounded to the precision once: convolution [M,kH,kW,C/group] (one channel a
//   group:
//     [kH,kW,M]), products [N,K]
//
// The plan's function is that of the graph, up to the rounding of what is stored and the order of sums.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/build/plan/engine_plan.h"
#include "engine/ir/graph.h"

namespace pare {

struct PlanOptions {
  DType precision = DType::kF16;  // how float values are stored: float32, float16 or bfloat16
  bool fold_norms = true;         // LayerNormalization inside of the products around it, where it can be
  bool shortcuts = false;  // 1x1 convolutions that are only a residual inside of the product that adds them
  bool integer = true;     // Q/DQ layers as int8 or E4M3 where they can; off: as fake quantization
  // float32 is stored, products and convolutions may round their operands to TF32 (10 bits of mantissa).
  bool tf32 = false;
};

// By EnginePlan::precision: "float32", "float16", "bfloat16" or "tf32". Error kBadFile for another.
void set_precision(PlanOptions& options, const std::string& precision);

// All inputs must have known sizes (fix_sizes of profile.h). Errors: kUnsupported naming the nodes that no
// layer can do, with the reason for each; kUsage for an open size.
EnginePlan make_plan(const Graph& graph, const PlanOptions& options = {});

// The same of a graph that is lowered already, without integer kernels.
EnginePlan plan_lowered(Graph lowered, const PlanOptions& options);

}  // namespace pare
