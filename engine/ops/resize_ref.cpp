#include "engine/ops/resize.h"

#include <algorithm>
#include <cmath>

#include "engine/numeric/convert.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

// One axis that changes.
struct AxisMap {
  std::size_t axis = 0;
  std::int64_t in = 1, out = 1;
  double scale = 1, exact_out = 1;  // exact_out: scale * in when scales are given
  double roi_start = 0, roi_end = 1;
};

struct Attributes19 {
  std::string mode, coordinates, nearest;
  bool antialias = false, exclude_outside = false;
  double cubic_a = -0.75, extrapolation = 0;
};

Attributes19 attributes(const Node& node) {
  Attributes19 a;
  a.mode = node.attr("mode", "nearest");
  a.coordinates = node.attr("coordinate_transformation_mode", "half_pixel");
  a.nearest = node.attr("nearest_mode", "round_prefer_floor");
  a.antialias = node.attr("antialias", std::int64_t{0}) != 0;
  a.exclude_outside = node.attr("exclude_outside", std::int64_t{0}) != 0;
  a.cubic_a = static_cast<double>(node.attr("cubic_coeff_a", -0.75F));
  a.extrapolation = static_cast<double>(node.attr("extrapolation_value", 0.0F));
  return a;
}

std::vector<double> doubles_of(const TensorView& view) {
  std::vector<double> values(static_cast<std::size_t>(view.size()));
  convert(view, {DType::kF64, view.dims, values.data()});
  return values;
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

struct Tap {
  std::int64_t place = 0;
  double weight = 0;
};

// What output place i is made of; {} means the extrapolation value.
std::vector<Tap> taps(const AxisMap& m, const Attributes19& a, std::int64_t i) {
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

// Resizes one axis of `data` (sizes `dims`). An output without taps takes the extrapolation value, and keeps
// it through the axes that follow: all lines through it are made of it.
void resize_axis(std::vector<double>& data, Dims& dims, const AxisMap& m, const Attributes19& a,
                 std::vector<std::uint8_t>& outside) {
  const std::int64_t outer = product_of(dims, 0, m.axis), inner = product_of(dims, m.axis + 1, dims.size());
  std::vector<double> result(static_cast<std::size_t>(outer * m.out * inner));
  std::vector<std::uint8_t> flags(result.size(), 0);
  for (std::int64_t i = 0; i < m.out; ++i) {
    const std::vector<Tap> all = taps(m, a, i);
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t k = 0; k < inner; ++k) {
        const auto to = static_cast<std::size_t>((o * m.out + i) * inner + k);
        double sum = 0;
        std::uint8_t flag = all.empty() ? 1 : 0;
        for (const Tap& tap : all) {
          const auto from = static_cast<std::size_t>((o * m.in + tap.place) * inner + k);
          if (tap.weight != 0) sum += tap.weight * data[from];
          flag |= outside[from];
        }
        flags[to] = flag;
        result[to] = flag != 0 ? a.extrapolation : sum;
      }
  }
  data = std::move(result);
  outside = std::move(flags);
  dims[m.axis] = m.out;
}

std::string why_not(const OpCall& call) {
  const std::string mode = call.node->attr("mode", "nearest");
  if (mode != "nearest" && mode != "linear" && mode != "cubic") return "mode " + mode;
  const DType type = call.in[0].dtype;
  if (is_small_float(type) || with_native_type(type, [](auto) {})) return {};
  return std::string("input 0 is ") + name(type) + ", needs a number";
}

void run(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  if (y.size() == 0) return;
  const Attributes19 a = attributes(*call.node);
  std::vector<double> data = doubles_of(x);
  std::vector<std::uint8_t> outside(data.size(), 0);
  Dims dims = x.dims;
  for (const AxisMap& map : axis_maps(call)) {
    const bool whole_roi = a.coordinates != "tf_crop_and_resize" || (map.roi_start == 0 && map.roi_end == 1);
    if (map.in == map.out && map.scale == 1 && whole_roi) continue;
    resize_axis(data, dims, map, a, outside);
  }
  convert({DType::kF64, y.dims, data.data()}, y);
}

}  // namespace

void add_resize_reference(Registry& registry) {
  Kernel kernel;
  kernel.op = "Resize";
  kernel.name = kernel_name("Resize", "reference");
  kernel.why_not = why_not;
  kernel.run = run;
  registry.add(kernel);
}

}  // namespace pare
