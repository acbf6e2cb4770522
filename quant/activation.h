// What activations may be quantized to, for which target, and which of them need statistics.
//
//   format             granularity      scales    pare   onnxruntime   tensorrt
//   int8, E4M3         tensor           static    yes    yes           yes
//   uint8, asymmetric  tensor           static    yes    yes           no: zero points
//   int16, uint16,     tensor           static    yes    yes           no: no such type, or for weights only
//   int4, uint4, E5M2
//   any of these       channel          static    yes    no            no: one scale for a whole activation
//   uint8, asymmetric  tensor           dynamic   yes    yes           no
//   int8, E4M3 ...     tensor or token  dynamic   yes    yes           no: only FP4 and MXFP8 in blocks
//
// The targets' own columns are in target_rules.h.
#pragma once

#include "quant/placement.h"

namespace pare::quant {

// Error kUsage or kUnsupported for what no target has.
void check_activation(const Format& format);

// The axis whose places are channels for the readers of an activation, 1 for a convolution, the last (or,
// with transA, the first) for a product. Of the value's shape, which must have a rank.
int activation_axis(const Graph& graph, const ActivationSite& site);

// Whether a range must come from calibration.
bool needs_statistics(const Format& format);
bool needs_statistics(const Spec& spec);  // of its defaults or of any rule

}  // namespace pare::quant
