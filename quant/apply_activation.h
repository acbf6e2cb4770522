// Writes the Q/DQ of one activation into a graph, in the form that its format needs.
//
// Static: QuantizeLinear and DequantizeLinear with constant scale and zero point; with an axis when there is
// one for each channel.
//
// Dynamic uint8 with a zero point: DynamicQuantizeLinear and DequantizeLinear (opset 11).
//
// Dynamic, symmetric: s = max(max|x| / largest code, 2^-126) by Abs, ReduceMax, Div and Max, then
// QuantizeLinear and DequantizeLinear with this s. Per tensor: over all of x (opset 13; FP8 19; 16 bits 21).
// Per token: for each row of the axis that is summed over, which is one block then (opset 21).
//
// Dynamic uint8 with a zero point, per token: engine/ir/token_scales.h (opset 21).
//
// Blocks: scales made at run time in E4M3 below the plan's scale, or powers of two
// (engine/ir/block_scales.h).
//
// In the dynamic forms NaN anywhere makes the scale NaN, and so every value that shares it.
#pragma once

#include "engine/ir/graph.h"
#include "quant/plan.h"

namespace pare::quant {

// Scale and zero point as the constants of a static pair: [] or [channels].
Tensor activation_scales(const ActivationPlan& plan);
Tensor activation_zero_points(const Format& format, const ActivationPlan& plan);

// A value named NAME + suffix, with the shape of `id`.
Value value_like(const Graph& graph, ValueId id, const std::string& suffix, DType dtype);

// Names: NAME_QuantizeLinear, NAME_DequantizeLinear, NAME_scale, NAME_zero_point; for dynamic forms also
// NAME_scale_... for what computes the scale.
void apply_activation(Graph& graph, const ActivationSite& site, const ActivationPlan& plan);

}  // namespace pare::quant
