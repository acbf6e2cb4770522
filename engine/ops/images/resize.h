// Resize (opset 19): each axis of its own, as weights on input places.
//
//   out place i stands for the input coordinate x (coordinate_transformation_mode):
//     half_pixel             (i + 1/2) / scale - 1/2
//     half_pixel_symmetric   the same, shifted so that the centre stays when scale * in is no integer
//     pytorch_half_pixel     the same, -1/2 when the output has one element
//     align_corners          i (in - 1) / (out - 1)
//     asymmetric             i / scale
//     tf_crop_and_resize     the same as align_corners within roi; outside the input: extrapolation_value
//   nearest (nearest_mode round_prefer_floor, round_prefer_ceil, floor, ceil), linear, cubic (cubic_coeff_a),
//   with antialias widened by 1 / scale when shrinking. Places outside the input show its edge, or with
//   exclude_outside weigh nothing.
//
// Axes are done one after the other; the reference in double, rounded once. Every number type for nearest,
// floats for the rest. Source: ONNX Resize-19 and its reference implementation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/ops/kernel.h"
#include "engine/ops/simd.h"

namespace pare {

// y = sum over t of weights[t] * x[places[t] * n .. + n], from zero on in the order of t; n floats.
PARE_SIMD_DECLARE(void weighted_rows(const float* x, std::int64_t n, const std::int64_t* places,
                                     const float* weights, int taps, float* y))

}  // namespace pare

namespace pare::resize {

// One axis that changes.
struct AxisMap {
  std::size_t axis = 0;
  std::int64_t in = 1, out = 1;
  double scale = 1, exact_out = 1;  // exact_out: scale * in when scales are given
  double roi_start = 0, roi_end = 1;
};

struct Attributes {
  std::string mode, coordinates, nearest;
  bool antialias = false, exclude_outside = false;
  double cubic_a = -0.75, extrapolation = 0;
};

struct Tap {
  std::int64_t place = 0;
  double weight = 0;
};

Attributes attributes(const Node& node);
std::vector<AxisMap> axis_maps(const OpCall& call);  // in run
bool changes_nothing(const AxisMap& map, const Attributes& attributes);
// What output place i is made of; {} means the extrapolation value.
std::vector<Tap> taps(const AxisMap& map, const Attributes& attributes, std::int64_t i);

// float32 on all threads, without tf_crop_and_resize; sums in float32 in the order of the taps.
Kernel rows_kernel();
Kernel reference_kernel();

}  // namespace pare::resize
