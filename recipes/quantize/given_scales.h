// Scales that were decided elsewhere (a TensorRT calibration cache) in place of statistics.
#pragma once

#include <string>
#include <vector>

#include "calib/trt_cache.h"
#include "engine/ir/graph.h"
#include "quant/placement/placement.h"
#include "quant/plan.h"

namespace pare {

// The cache's names that no value of the model has, subgraphs included; sorted. Give it the model as the file
// has it: simplifying removes names.
std::vector<std::string> unmatched_names(const TrtCache& cache, const Graph& model);
// One sentence about them for people, with the first ten; "" when there are none.
std::string unmatched_sentence(const std::vector<std::string>& names, std::size_t of);

// Leaves float what the cache has no scale for, with that reason, as TensorRT did.
void leave_unknown_float(const Graph& graph, quant::Placement& placement, const TrtCache& cache);

// The range behind a scale of the cache: +-127 s, exact. With int8 its scale is s again in every bit; other
// symmetric formats get the same largest magnitude. Scale 0 is the range [0, 0].
quant::ChosenRange given_range(const TrtCacheEntry& entry);

}  // namespace pare
