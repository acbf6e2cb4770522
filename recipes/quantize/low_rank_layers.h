// Low-rank corrections (quant/rounding/low_rank.h) of the linear layers that ask for them, as operators of
// the graph:
//
//   y = MatMul(x, W)   becomes   y = MatMul(x, W - BA) + MatMul(MatMul(x, A), B)
//
// The float function stays. The two thin products read x itself and stay float; only W - BA is quantized, by
// codes that were chosen together with BA.
#pragma once

#include <string>
#include <vector>

#include "quant/plan.h"
#include "recipes/quantize/layer_grams.h"
#include "recipes/quantize/solve_weights.h"

namespace pare {

struct LowRankLayer {
  std::string tensor;  // the weight
  std::int64_t rank = 0;
  double plain_loss = 0, loss = 0;  // output errors without and with, relative to the output's power
};

struct LowRankResult {
  Graph graph;
  std::vector<LowRankLayer> layers;
  struct Codes {             // of the residuals
    std::size_t weight = 0;  // index in the placement's weights
    quant::WeightRows rows;  // W - BA
    SolvedRows solved;
  };
  std::vector<Codes> codes;
  std::vector<std::string> notes;  // layers that cannot have one, and why
};

// The placement stays valid for the new graph: it knows nothing of the products.
LowRankResult add_low_rank(const Graph& graph, const quant::Placement& placement, const LayerGrams& grams,
                           std::int64_t rank, const SolveOptions& options, ThreadPool& pool);

}  // namespace pare
