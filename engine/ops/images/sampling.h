// Values of an image at places between its elements, and what is built on them.
//
//   GridSample    y[n, c, o] = x[n, c] at the place that grid[n, o] names: coordinates in [-1, 1], the
//                 last axis first. align_corners: -1 and 1 are the centres of the outermost elements, else
//                 their outer edges. nearest (ties to even), linear, cubic (a = -0.75); padding_mode
//                 zeros, border, reflection (at the outermost centres or edges). Any number of spatial
//                 axes, any number type (integers: cut towards zero)
//   DeformConv    Conv whose kernel places are moved by `offset` (linear interpolation, zeros outside) and
//                 weighed by `mask`; groups of input channels share offsets (offset_group)
//   AffineGrid    grid[n, o] = theta[n] (centre of o, 1): what GridSample takes, for 2 or 3 axes. An axis
//                 of one element with align_corners lies at -1
//   RoiAlign      mean (avg) or largest (max) of sampling_ratio^2 linear samples a bin; 0: as many as the
//                 bin has elements. coordinate_transformation_mode half_pixel moves the box by -1/2. max
//                 takes the largest of the four weighted neighbours of each sample, as ONNX defines it
//   MaxRoiPool    the largest element of each bin of a box rounded to whole elements; an empty bin is 0
//   NonMaxSuppression
//                 rows (batch, class, box), best score first (equal ones: the lower box), without boxes that
//                 overlap a better one of their class by more than iou_threshold (intersection over union,
//                 in float32), of those whose score is above score_threshold, max_output_boxes_per_class
//                 (default 0) of them. A score of NaN is never chosen. Boxes by two corners, or with
//                 center_point_box (x, y, width, height)
//
// A coordinate that is NaN or beyond 1e9: 0 with zeros and in DeformConv, else an outermost element. In
// double, rounded once. float16, bfloat16, float32, float64. Source: ONNX GridSample-22, DeformConv-22,
// AffineGrid-20, RoiAlign-22, MaxRoiPool-22, NonMaxSuppression-11, and their reference implementations
// (MaxRoiPool: Caffe's ROIPooling).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/tensor.h"

namespace pare {

class Registry;

// One of the elements that a place between elements is made of.
struct Sample {
  std::int64_t place = 0;  // flat, in the plane
  double weight = 0;
};

enum class OutsideImage : std::uint8_t { kZeros, kBorder, kReflection };
enum class Interpolation : std::uint8_t { kNearest, kLinear, kCubic };

struct Sampler {
  Dims sizes;  // of the plane
  Interpolation mode = Interpolation::kLinear;
  OutsideImage outside = OutsideImage::kZeros;
  bool align_corners = false;  // where reflection turns round

  // The elements that make up the place `at` (in elements from the first, one number an axis), at most
  // 4^axes.
  void taps(const double* at, std::vector<Sample>& out) const;
};

void add_sampling_references(Registry& registry);  // GridSample, DeformConv, AffineGrid
void add_region_references(Registry& registry);    // RoiAlign, MaxRoiPool, NonMaxSuppression

}  // namespace pare
