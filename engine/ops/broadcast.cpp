#include "engine/ops/broadcast.h"

#include <algorithm>

#include "engine/base/error.h"

namespace pare {

BroadcastPlan plan_broadcast(const Dims& out, const Dims* const* in, std::size_t inputs) {
  PARE_ASSERT(inputs <= kMaxBroadcastInputs);
  BroadcastPlan plan;
  plan.inputs = inputs;
  plan.count = element_count(out);
  std::array<std::int64_t, kMaxBroadcastInputs> next{};  // stride of the next axis to the left
  next.fill(1);
  // From the right; built backwards.
  for (std::size_t i = out.size(); i-- > 0;) {
    if (out[i] == 1) continue;
    std::array<std::int64_t, kMaxBroadcastInputs> stride{};
    bool merges = !plan.dims.empty();
    for (std::size_t k = 0; k < inputs; ++k) {
      const std::size_t missing = out.size() - in[k]->size();
      const std::int64_t size = i < missing ? 1 : (*in[k])[i - missing];
      PARE_ASSERT(size == 1 || size == out[i]);
      stride[k] = size == 1 ? 0 : next[k];
      next[k] *= size;
      if (merges) merges = stride[k] == plan.strides[k].back() * plan.dims.back();
    }
    if (merges) {
      plan.dims.back() *= out[i];
      continue;
    }
    plan.dims.push_back(out[i]);
    for (std::size_t k = 0; k < inputs; ++k) plan.strides[k].push_back(stride[k]);
  }
  if (plan.dims.empty()) {
    plan.dims.push_back(1);
    for (std::size_t k = 0; k < inputs; ++k) plan.strides[k].push_back(0);
  }

  std::reverse(plan.dims.begin(), plan.dims.end());
  for (std::size_t k = 0; k < inputs; ++k) std::reverse(plan.strides[k].begin(), plan.strides[k].end());
  return plan;
}

}  // namespace pare
