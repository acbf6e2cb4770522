// Writes the Q/DQ of one activation into a graph, in the form that its format needs.
//
//   static                    QuantizeLinear, DequantizeLinear with constant scale and zero point; per
//   channel with
//                             an axis
//   dynamic, uint8 with       DynamicQuantizeLinear, DequantizeLinear (opset 11); `pare convert --to
//   qoperator` zero point, per tensor    makes MatMulInteger and ConvInteger of it dynamic, symmetric, per s
//   = max(max|x| / largest code, 2^-126) over the whole tensor (Abs, ReduceMax, Div, tensor Max), then
//   QuantizeLinear, DequantizeLinear with this s (opset 13; FP8 19; 16 bits 21) dynamic, per token        the
//   same s over the last axis, kept as an axis of one; QuantizeLinear and
//                             DequantizeLinear with one block as long as that axis (opset 21)
//
// In the dynamic forms NaN anywhere makes the scale NaN, and so every value that shares it.
#pragma once

#include "engine/ir/graph.h"
#include "quant/plan.h"

namespace pare::quant {

// Scale and zero point as the constants of a static pair: [] or [channels].
Tensor activation_scales(const ActivationPlan& plan);
Tensor activation_zero_points(const Format& format, const ActivationPlan& plan);

// Names: NAME_QuantizeLinear, NAME_DequantizeLinear, NAME_scale, NAME_zero_point; for dynamic forms also
// NAME_scale_... for what computes the scale.
void apply_activation(Graph& graph, const ActivationSite& site, const ActivationPlan& plan);

}  // namespace pare::quant
