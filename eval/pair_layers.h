// Pairs the values of two graphs by Value::origin and compares them over the first samples; counts clipping
// on the way. Apart from the metrics' own pass, because watched values keep fusions from happening.
#pragma once

#include <utility>
#include <vector>

#include "engine/ir/subgraph.h"
#include "eval/evaluate.h"

namespace pare {

struct LayerPair {
  ValueId reference, candidate;
  SubgraphPath reference_path = {}, candidate_path = {};
};
// Outputs of Conv, ConvTranspose, Gemm, MatMul, Add and of the graph that both graphs have, in the order of
// the reference graph. Values with the same origin (or, without one, the same name) are pairs. Inside
// subgraphs the same, where both have a subgraph of that label (subgraph.h); iterations are paired one by
// one.
std::vector<LayerPair> pair_layers(const Graph& reference, const Graph& candidate);

struct LayerFigures {
  std::int64_t samples = 0;
  std::vector<LayerDifference> layers;
  std::vector<ClipShare> clipping;
  double clipping_rate = 0;  // clipped values of all ranges over all values
};
// Over min(options.layer_samples, samples) samples; all of them when layer_samples is 0.
LayerFigures compare_layers(const Graph& reference, const Graph& candidate, Dataset& data,
                            const EvaluateOptions& options);

}  // namespace pare
