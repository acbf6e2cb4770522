// Where intermediate values lie in one block of memory: two may share bytes when no layer needs both.
//
// A value lives from the layer that writes it to the last that reads it. Values are placed largest first,
// each at the smallest gap that holds it among those alive at the same time (best fit). Offsets are multiples
// of 256. Weights get offsets of their own, in order; equal ones
// (PlanTensor::hash) one.
#pragma once

#include <cstdint>

#include "engine/build/plan/engine_plan.h"

namespace pare {

inline constexpr std::int64_t kPlanAlignment = 256;

// Fills PlanTensor::offset of activations and weights, arena_bytes, weight_bytes and workspace_bytes (the
// largest layer's). Returns the sum of activations without reuse, for the report.
std::int64_t plan_memory(EnginePlan& plan);

// What a planned engine asks its device for, in bytes. Contexts and heaps of libraries come on top.
struct PlannedMemory {
  std::int64_t weights = 0, activations = 0, workspace = 0, io = 0;
  std::int64_t peak() const { return weights + activations + workspace + io; }
};
PlannedMemory planned_memory(const EnginePlan& plan);
// About how many samples fit into `bytes` when the plan is for `batch`: activations, inputs and outputs grow
// with the batch, the rest does not.
std::int64_t largest_batch(const EnginePlan& plan, std::int64_t batch, std::int64_t bytes);
// Error kDevice, naming the largest batch that fits, when the plan needs more than `bytes`. `lent`: its
// weights are on the device already.
void check_fits(const EnginePlan& plan, std::int64_t batch, std::int64_t bytes, bool lent = false);

}  // namespace pare
