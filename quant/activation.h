// What activations may be quantized to, for which target, and which of them need statistics.
//
//   format              granularity        scales    pare   onnxruntime   tensorrt
//   int8                tensor             static    yes    yes           yes
//   uint8               tensor             static    yes    yes           no: zero points
//   int16, uint16       tensor             static    yes    yes           no: no such type
//   int4, uint4         tensor             static    yes    yes           no: INT4 is for weights
//   E4M3                tensor             static    yes    yes           yes
//   E5M2                tensor             static    yes    yes           no: only E4M3
//   int8, uint8 ...     channel            static    yes    yes           no: activations take one scale
//   uint8, asymmetric   tensor             dynamic   yes    yes           no
//   int8, E4M3 ...      tensor or token    dynamic   yes    yes           no: only FP4 and MXFP8 in blocks
#pragma once

#include "quant/placement.h"

namespace pare::quant {

// The axis whose places are channels for the readers of an activation, 1 for a convolution, the last (or,
// with transA, the first) for a product. Of the value's shape, which must have a rank.
int activation_axis(const Graph& graph, const ActivationSite& site);

// Whether a range must come from calibration.
bool needs_statistics(const Format& format);
bool needs_statistics(const Spec& spec);  // of its defaults or of any rule

}  // namespace pare::quant
