// Decisions with numbers: scales, zero points and codes for every site of a placement, and the one place
// that writes them into a graph.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/ir/graph.h"
#include "quant/grid/weight_rows.h"
#include "quant/placement/activation.h"
#include "quant/placement/placement.h"

namespace pare::quant {

// How the codes of a weight came about, for the report. Losses: output error relative to the output's power.
struct LayerRecord {
  std::string method;    // that was used
  std::string fallback;  // why it is not the one that was asked for
  double loss = 0;
  double held_out_loss = 0;  // on samples that nothing was fitted to; NaN without
  std::vector<std::pair<std::string, double>> tried;
};

struct WeightPlan {
  Tensor codes;   // the format's dtype, the weight's dims
  Tensor scales;  // the format's type of scales: [], [channels], or the weight's dims with blocks for inputs
  Tensor global;  // two levels: a float32 that every scale is multiplied by; else empty
  Tensor zero_points;   // the format's dtype, dims of the scales; empty when symmetric
  bool nearest = true;  // every code is the nearest to its weight; methods with feedback set it to false
  double mse = 0;       // mean squared error of the dequantized weight
  double sqnr_db = 0;
  std::int64_t clipped = 0;  // elements beyond the largest code
  LayerRecord record;

  std::int64_t bytes() const;  // all that is written of it
};

struct Plan {
  Placement placement;
  std::vector<ActivationPlan> activations;  // by placement.activations
  std::vector<WeightPlan> weights;          // by placement.weights
};

// The weight of a site as rows for the site's format, and how they lie in it (weight_rows.h).
WeightView site_view(const WeightSite& site, const Dims& dims);
WeightRows site_rows(const Tensor& weight, const WeightSite& site);
// Tensors and figures from a grid of grid_format(site.format) and codes (one a byte, in the order of rows),
// wherever they come from. `dims` of the weight; `rows` are what the figures compare with.
WeightPlan weight_plan(const WeightSite& site, const Dims& dims, const WeightRows& rows, const Grid& grid,
                       const std::vector<std::uint8_t>& codes, ThreadPool& pool);
// What a reader of the plan's tensors computes, in the weight's dims.
Tensor dequantized(const WeightSite& site, const WeightPlan& plan);

// Weights once (they do not depend on activations), by spec.method.
std::vector<WeightPlan> plan_weights(const Graph& graph, const Placement& placement,
                                     const std::string& method, ThreadPool& pool);

// The graph with Q/DQ in it. Value names of the source stay; new values are NAME_QuantizeLinear and
// NAME_DequantizeLinear. Needs the opset that the formats need (graphsurgeon raises it when it writes).
Graph apply(const Graph& graph, const Plan& plan);

}  // namespace pare::quant
