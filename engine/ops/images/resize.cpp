#include "engine/ops/images/resize.h"

#include <algorithm>
#include <cmath>

#include "engine/ops/support.h"

namespace pare::resize {
namespace {

double source_coordinate(const AxisMap& m, const std::string& mode, std::int64_t i) {
  const auto x = static_cast<double>(i), in = static_cast<double>(m.in);
  if (mode == "align_corners") return m.exact_out == 1 ? 0 : x * (in - 1) / (m.exact_out - 1);
  if (mode == "asymmetric") return x / m.scale;
  if (mode == "tf_crop_and_resize") {
    const double span = (m.roi_end - m.roi_start) * (in - 1);
    return m.roi_start * (in - 1) + (m.exact_out == 1 ? span / 2 : x * span / (m.exact_out - 1));
  }
  if (mode == "pytorch_half_pixel" && m.exact_out == 1) return -0.5;
  const double plain = (x + 0.5) / m.scale - 0.5;
  if (mode != "half_pixel_symmetric") return plain;
  return in / 2 * (1 - static_cast<double>(m.out) / m.exact_out) + plain;
}

double cubic(double x, double a) {
  x = std::fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

}  // namespace

Attributes attributes(const Node& node) {
  Attributes a;
  a.mode = node.attr("mode", "nearest");
  a.coordinates = node.attr("coordinate_transformation_mode", "half_pixel");
  a.nearest = node.attr("nearest_mode", "round_prefer_floor");
  a.antialias = node.attr("antialias", std::int64_t{0}) != 0;
  a.exclude_outside = node.attr("exclude_outside", std::int64_t{0}) != 0;
  a.cubic_a = static_cast<double>(node.attr("cubic_coeff_a", -0.75F));
  a.extrapolation = static_cast<double>(node.attr("extrapolation_value", 0.0F));
  return a;
}

std::vector<AxisMap> axis_maps(const OpCall& call) {
  const Dims &in = call.in[0].dims, &out = call.out[0].dims;
  const auto rank = static_cast<std::int64_t>(in.size());
  std::vector<std::int64_t> axes = call.node->attr_ints("axes");
  if (axes.empty())
    for (std::int64_t i = 0; i < rank; ++i) axes.push_back(i);
  std::vector<double> roi, scales;
  if (call.has(1) && call.in[1].size() > 0) roi = doubles_of(call.in[1]);
  const bool by_size = call.has(3);
  if (!by_size) scales = doubles_of(call.in[2]);
  std::vector<AxisMap> maps;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    AxisMap map;
    map.axis = static_cast<std::size_t>(axes[i] < 0 ? axes[i] + rank : axes[i]);
    map.in = in[map.axis];
    map.out = out[map.axis];
    map.scale = by_size ? static_cast<double>(map.out) / static_cast<double>(map.in) : scales[i];
    map.exact_out = by_size ? static_cast<double>(map.out) : map.scale * static_cast<double>(map.in);
    if (roi.size() == 2 * axes.size()) {
      map.roi_start = roi[i];
      map.roi_end = roi[i + axes.size()];
    }
    maps.push_back(map);
  }
  const std::string policy = call.node->attr("keep_aspect_ratio_policy", "stretch");
  if (by_size &&
      policy != "stretch") {  // one scale for all axes: that of the wished, not of the rounded sizes
    const std::vector<double> wished = doubles_of(call.in[3]);
    double scale = 0;
    for (std::size_t i = 0; i < maps.size(); ++i) {
      const double own = wished[i] / static_cast<double>(maps[i].in);
      scale = i == 0 ? own : policy == "not_larger" ? std::min(scale, own) : std::max(scale, own);
    }
    for (AxisMap& map : maps) map.scale = scale;
  }
  return maps;
}

bool changes_nothing(const AxisMap& m, const Attributes& a) {
  const bool whole_roi = a.coordinates != "tf_crop_and_resize" || (m.roi_start == 0 && m.roi_end == 1);
  return m.in == m.out && m.scale == 1 && whole_roi;
}

std::vector<Tap> taps(const AxisMap& m, const Attributes& a, std::int64_t i) {
  const double x = source_coordinate(m, a.coordinates, i);
  if (a.coordinates == "tf_crop_and_resize" && (x < 0 || x > static_cast<double>(m.in - 1))) return {};
  // The pixel left of x, and how far x is behind it, in (0, 1].
  const double left = std::ceil(x) - 1, ratio = x - left;
  std::vector<Tap> all;
  if (a.mode == "nearest") {
    bool right = ratio > 0.5;
    if (a.nearest == "round_prefer_ceil") right = ratio >= 0.5;
    if (a.nearest == "floor") right = ratio == 1;
    if (a.nearest == "ceil") right = true;
    all.push_back({static_cast<std::int64_t>(left) + (right ? 1 : 0), 1});
  } else {
    const double reach = a.mode == "cubic" ? 2 : 1, squeeze = a.antialias ? std::min(m.scale, 1.0) : 1.0;
    const auto first = static_cast<std::int64_t>(std::floor(-reach / squeeze)) + 1;
    for (std::int64_t k = first; k < 2 - first; ++k) {
      const double distance = squeeze * (static_cast<double>(k) - ratio);
      const double weight =
          a.mode == "cubic" ? cubic(distance, a.cubic_a) : std::max(0.0, 1 - std::fabs(distance));
      all.push_back({static_cast<std::int64_t>(left) + k, weight});
    }
  }
  double sum = 0;
  for (Tap& tap : all) {
    const bool outside = tap.place < 0 || tap.place >= m.in;
    if (outside && a.exclude_outside) tap.weight = 0;
    tap.place = std::clamp<std::int64_t>(tap.place, 0, m.in - 1);
    sum += tap.weight;
  }
  if (a.exclude_outside || a.antialias)
    for (Tap& tap : all) tap.weight /= sum;
  return all;
}

}  // namespace pare::resize
