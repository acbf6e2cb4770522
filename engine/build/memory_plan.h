// Where intermediate values lie in one block of memory: two may share bytes when no layer needs both.
//
// A value lives from the layer that writes it to the last that reads it. Values are placed largest first,
// each at the smallest gap that holds it among those alive at the same time (best fit). Offsets are multiples
// of 256. Weights get offsets of their own, in order.
#pragma once

#include <cstdint>

#include "engine/build/engine_plan.h"

namespace pare {

inline constexpr std::int64_t kPlanAlignment = 256;

// Fills PlanTensor::offset of activations and weights, arena_bytes, weight_bytes and workspace_bytes (the
// largest layer's). Returns the sum of activations without reuse, for the report.
std::int64_t plan_memory(EnginePlan& plan);

}  // namespace pare
