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
// Axes are done one after the other in double, rounded once. Every number type for nearest, floats for the
// rest. Source: ONNX Resize-19 and its reference implementation.
#pragma once

namespace pare {

class Registry;
void add_resize_reference(Registry& registry);

}  // namespace pare
