// Statistics of activations that share a range: those of one group (quant/placement/placement.h) count
// together.
#pragma once

#include <memory>
#include <vector>

#include "calib/tensor_stats.h"
#include "quant/placement/placement.h"

namespace pare {

// `stats` by placement.activations. Those of a group are replaced by their sum, each under its own name and
// without maxima by channel; `held` keeps the sums alive. Exact: counts are whole numbers.
void join_group_stats(const quant::Placement& placement, std::vector<const TensorStats*>& stats,
                      std::vector<std::shared_ptr<const TensorStats>>& held);

}  // namespace pare
