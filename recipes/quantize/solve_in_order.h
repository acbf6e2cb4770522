// Weights of a whole model, solved layer after layer in the order of the graph, each for the input that it
// will have: what the layers before it make of the samples once they are quantized, rounded itself where
// activations are. Two graphs run side by side, the float one and the quantized one so far (graph_stepper.h),
// each once over the samples; between two pieces the layers that read one value are solved.
//
// A layer aims at what it computed in the float model and, where its output is added to a residual stream, at
// the error that stream has by then (quant/rounding/retarget.h). Layers that cannot be solved like this
// (inside a subgraph, a weight that several nodes read, no MatMul or Gemm) keep their plan; so do layers of
// methods that do not look at second moments.
#pragma once

#include <vector>

#include "datasets/dataset.h"
#include "engine/base/progress.h"
#include "quant/plan.h"
#include "recipes/quantize/solve_weights.h"

namespace pare {

struct InOrderOptions {
  SolveOptions solve;
  std::int64_t samples = 128;  // the first so many of the data
  double ridge = 0.01;         // of the regression
  bool residual = true;        // aim at the error of the residual stream too
  bool rounded = true;         // of the input as activations are rounded; false: as it is before
  // Of the float model: what outputs weigh, where it holds moments of their gradients. May be null.
  const LayerGrams* grams = nullptr;
};

// `graph` float, as `plan` is of; its low-rank products (low_rank_layers.h) are fitted again with the codes
// beside them, to what rounding the activations costs too, and so is the residual weight. Returns plans by
// placement.weights.
std::vector<quant::WeightPlan> solve_in_order(Graph& graph, const quant::Plan& plan, Dataset& data,
                                              const InOrderOptions& options, Progress& progress,
                                              ThreadPool& pool);

}  // namespace pare
