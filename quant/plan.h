// Decisions with numbers: scales, zero points and codes for every site of a placement, and the one place
// that writes them into a graph.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/ir/graph.h"
#include "quant/placement.h"

namespace pare::quant {

// What calibration (or a search) chose for one activation.
struct ChosenRange {
  double low = 0, high = 0;  // symmetric formats use max(|low|, |high|)
  std::string method;        // "minmax", "mse", ...
};

struct ActivationPlan {
  float scale = 1;
  std::int32_t zero_point = 0;
  ChosenRange range;
};

struct WeightPlan {
  Tensor codes;    // the format's dtype, the weight's dims
  Tensor scales;   // f32, [] or [channels]
  double mse = 0;  // mean squared error of the dequantized weight
  double sqnr_db = 0;
  std::int64_t clipped = 0;  // elements beyond the largest code
};

struct Plan {
  Placement placement;
  std::vector<ActivationPlan> activations;  // by placement.activations
  std::vector<WeightPlan> weights;          // by placement.weights
};

// scale and zero point from a range. Symmetric: amax / largest code (127 for int8, 448 for E4M3).
// Asymmetric: the range is extended to hold 0 and cut into 255 steps. An all-zero or empty range gives
// scale 1. Error kUsage for NaN or infinity.
ActivationPlan activation_from_range(const Format& format, const ChosenRange& range);

// Weights once (they do not depend on activations), by spec.method.
std::vector<WeightPlan> plan_weights(const Graph& graph, const Placement& placement,
                                     const std::string& method, ThreadPool& pool);

// The graph with Q/DQ in it. Value names of the source stay; new values are NAME_QuantizeLinear and
// NAME_DequantizeLinear. Needs the opset that the formats need (graphsurgeon raises it when it writes).
Graph apply(const Graph& graph, const Plan& plan);

}  // namespace pare::quant
