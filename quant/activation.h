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

// The axis of an input that a node sums over: 1 for a convolution, for a product the last of the left side
// and the last but one of the right (the other one where Gemm transposes).
int summed_axis(const Node& node, int slot, int rank);

// Error kUsage or kUnsupported for what no target has.
void check_activation(const Format& format);

// summed_axis for the readers of an activation, whose places are its channels. Its rank must be known.
int activation_axis(const Graph& graph, const ActivationSite& site);

// Why the inputs of a linear node cannot have a scale a token; "" when they can, or when the format has none.
// A token is a row along the axis that the product sums over, whose size must be known. Convolutions sum over
// channels and places at once.
std::string why_no_tokens(const Graph& graph, const Node& node, const Format& activations);

// Whether a range must come from calibration.
bool needs_statistics(const Format& format);
bool needs_statistics(const Spec& spec);  // of its defaults or of any rule

}  // namespace pare::quant
