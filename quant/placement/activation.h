// What activations may be quantized to, for which target, and which of them need statistics.
//
//   format             granularity      scales    pare   onnxruntime   tensorrt
//   int8, E4M3         tensor           static    yes    yes           yes
//   uint8, asymmetric  tensor           static    yes    yes           no: zero points
//   int16, uint16,     tensor           static    yes    yes           no: no such type, or for weights only
//   int4, uint4, E5M2
//   any of these       channel          static    yes    no            no: one scale for a whole activation
//   uint8, asymmetric  tensor           dynamic   yes    yes           no
//   uint8, asymmetric  token            dynamic   yes    yes           no
//   int8, E4M3 ...     tensor or token  dynamic   yes    yes           no: only FP4 and MXFP8 in blocks
//
// The targets' own columns are in target_rules.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quant/placement/placement.h"

namespace pare::quant {

// What calibration (or a search) chose for one activation.
struct ChosenRange {
  double low = 0, high = 0;  // symmetric formats use max(|low|, |high|)
  std::string method;        // "minmax", "mse", ...
};

// Scale and zero point of one activation. Nothing of it counts where the format is dynamic.
struct ActivationPlan {
  float scale = 1;
  std::int32_t zero_point = 0;
  ChosenRange range;
  std::vector<float> channel_scales;  // per channel: one for each, in place of scale; else empty
  std::vector<std::int32_t> channel_zero_points;
};

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
bool needs_statistics(const Spec& spec);  // of its defaults, of any rule, of the KV cache

// Scale and zero point from a range:
//   symmetric    amax / symmetric_largest (127 for int8 and uint8, 32,767 for int16, 448 for E4M3); the zero
//                point is 0, or the middle code of an unsigned format (128, 32,768)
//   asymmetric   the range is extended to hold 0 and cut into as many steps as there are codes less one; the
//                zero point is rne(lowest - low / scale), clamped to the codes
//   NVFP4        (E2M1 in blocks with E4M3 scales): the global scale amax / (6 * 448)
// An all-zero range, and one too small to divide by, gives scale 1. Error kUsage for NaN, infinity, low >
// high.
ActivationPlan activation_from_range(const Format& format, const ChosenRange& range);
// Per channel: one range for each; the plan's own `range` spans them all.
ActivationPlan activation_from_ranges(const Format& format, const std::vector<ChosenRange>& channels);

}  // namespace pare::quant
