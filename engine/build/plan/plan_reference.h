// A plan run by plain loops on the CPU: the definition of every layer, and what kernels of a device are
// tested against.
//
// Sums in double, everything else in float32; what is stored is rounded to the type of its tensor. Slow; for
// tests and `pare verify --reference-plan`. One layer at a time, so a device's layer can be checked on its
// own inputs.
#pragma once

#include <vector>

#include "engine/build/plan/engine_plan.h"

namespace pare {

// `values` by tensor: inputs and activations that the layer reads hold data (weights are the plan's own).
// Outputs are allocated when they are empty, and written where the layer's views say.
void run_layer_reference(const EnginePlan& plan, const PlanLayer& layer, std::vector<Tensor>& values);

// The whole plan: inputs in its order and types; outputs in its order.
std::vector<Tensor> run_plan_reference(const EnginePlan& plan, const std::vector<Tensor>& inputs);

}  // namespace pare
