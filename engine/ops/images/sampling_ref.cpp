#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/ir/window.h"
#include "engine/ops/images/sampling.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

constexpr double kFar = 1e9;  // beyond any image, and whole numbers of it are exact

double reflect(double x, double least, double most) {
  const double span = most - least;
  if (span <= 0) return least;
  const bool below = x < least;
  if (!below && x <= most) return x;
  const double beyond = below ? least - x : x - most, turns = std::trunc(beyond / span);
  const double rest = beyond - turns * span;
  const bool from_least = below == (std::fmod(turns, 2) == 0);
  return from_least ? least + rest : most - rest;
}

// Weights of the four elements around a place that is `t` behind the second.
void cubic_weights(double t, double* w) {
  constexpr double a = -0.75;
  const auto near = [](double x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far = [](double x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  w[0] = far(1 + t);
  w[1] = near(t);
  w[2] = near(1 - t);
  w[3] = far(2 - t);
}

struct AxisTaps {
  std::int64_t place[4] = {0, 0, 0, 0};
  double weight[4] = {0, 0, 0, 0};
  int count = 0;
};

AxisTaps axis_taps(const Sampler& s, std::int64_t size, double x) {
  AxisTaps taps;
  const double least = s.align_corners ? 0 : -0.5,
               most = static_cast<double>(size) - (s.align_corners ? 1.0 : 0.5);
  if (!(std::fabs(x) < kFar)) {
    if (s.outside == OutsideImage::kZeros) return taps;
    x = std::isfinite(x) && s.outside == OutsideImage::kBorder && x > 0 ? static_cast<double>(size - 1) : 0;
  }
  if (s.mode == Interpolation::kNearest) x = std::nearbyint(x);
  if (x < least || x > most) {
    if (s.outside == OutsideImage::kBorder) x = std::clamp(x, 0.0, static_cast<double>(size - 1));
    if (s.outside == OutsideImage::kReflection) x = reflect(x, least, most);
  }
  double first = std::floor(x);
  if (s.mode == Interpolation::kNearest) {
    first = std::trunc(x);
    taps.count = 1;
    taps.weight[0] = 1;
  } else if (s.mode == Interpolation::kLinear) {
    taps.count = 2;
    taps.weight[0] = 1 - (x - first);
    taps.weight[1] = x - first;
  } else {
    taps.count = 4;
    cubic_weights(x - first, taps.weight);
    first -= 1;
  }
  for (int i = 0; i < taps.count; ++i) {
    auto place = static_cast<std::int64_t>(first) + i;
    if (place < 0 || place >= size) {
      if (s.outside == OutsideImage::kZeros) taps.weight[i] = 0;
      if (s.outside == OutsideImage::kReflection)
        place = static_cast<std::int64_t>(reflect(static_cast<double>(place), least, most));
      place = std::clamp<std::int64_t>(place, 0, size - 1);
    }
    taps.place[i] = place;
  }
  return taps;
}

}  // namespace

void Sampler::taps(const double* at, std::vector<Sample>& out) const {
  out.assign(1, {0, 1});
  std::vector<Sample> next;
  for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
    const AxisTaps own = axis_taps(*this, sizes[axis], at[axis]);
    next.clear();
    for (const Sample& sample : out)
      for (int i = 0; i < own.count; ++i)
        if (own.weight[i] != 0)
          next.push_back({sample.place * sizes[axis] + own.place[i], sample.weight * own.weight[i]});
    out.swap(next);
  }
}

namespace {

// --- GridSample

bool interpolation_of(const std::string& text, Interpolation& out) {
  if (text == "nearest") return out = Interpolation::kNearest, true;
  if (text == "linear") return out = Interpolation::kLinear, true;
  if (text == "cubic") return out = Interpolation::kCubic, true;
  return false;
}

bool outside_of(const std::string& text, OutsideImage& out) {
  if (text == "zeros") return out = OutsideImage::kZeros, true;
  if (text == "border") return out = OutsideImage::kBorder, true;
  if (text == "reflection") return out = OutsideImage::kReflection, true;
  return false;
}

std::string grid_why_not(const OpCall& call) {
  Sampler s;
  const std::string mode = call.node->attr("mode", "linear"),
                    padding = call.node->attr("padding_mode", "zeros");
  if (!interpolation_of(mode, s.mode)) return "mode " + mode;
  if (!outside_of(padding, s.outside)) return "padding_mode " + padding;
  const DType type = call.in[0].dtype;
  if (!is_small_float(type) && !with_native_type(type, [](auto) {}))
    return std::string("input 0 is ") + name(type) + ", needs a number";
  return float_reason(call, {1});
}

void run_grid(const OpCall& call) {
  const Dims &x_dims = call.in[0].dims, &y_dims = call.out[0].dims;
  if (call.out[0].size() == 0) return;
  Sampler s;
  s.sizes = Dims(x_dims.begin() + 2, x_dims.end());
  s.align_corners = call.node->attr("align_corners", std::int64_t{0}) != 0;
  interpolation_of(call.node->attr("mode", "linear"), s.mode);
  outside_of(call.node->attr("padding_mode", "zeros"), s.outside);
  const std::vector<double> x = doubles_of(call.in[0]), grid = doubles_of(call.in[1]);
  std::vector<double> y(static_cast<std::size_t>(call.out[0].size()));
  const std::size_t axes = s.sizes.size();
  const std::int64_t channels = x_dims[1], plane = product_of(x_dims, 2, x_dims.size()),
                     points = product_of(y_dims, 2, y_dims.size());
  if (plane == 0) throw make_error(ErrorCode::kBadFile, "GridSample of an empty image {}", to_string(x_dims));
  call.pool->parallel_for(x_dims[0] * points, 64, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> at(axes);
    std::vector<Sample> samples;
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::size_t k = 0; k < axes; ++k) {
        const double u = grid[static_cast<std::size_t>(i) * axes + axes - 1 - k];
        const auto size = static_cast<double>(s.sizes[k]);
        at[k] = s.align_corners ? (u + 1) / 2 * (size - 1) : ((u + 1) * size - 1) / 2;
      }
      s.taps(at.data(), samples);
      for (std::int64_t c = 0; c < channels; ++c) {
        const double* image = x.data() + (i / points * channels + c) * plane;
        double sum = 0;
        for (const Sample& sample : samples) sum += sample.weight * image[sample.place];
        y[static_cast<std::size_t>((i / points * channels + c) * points + i % points)] = sum;
      }
    }
  });
  write_doubles(call.out[0], y);
}

// --- DeformConv

std::string deform_why_not(const OpCall& call) { return float_reason(call, {0, 1, 2, 3, 4}); }

void run_deform(const OpCall& call) {
  const Dims &x_dims = call.in[0].dims, &w_dims = call.in[1].dims, &y_dims = call.out[0].dims;
  const Window window = read_window(*call.node, Dims(w_dims.begin() + 2, w_dims.end()));
  Sampler s;
  s.sizes = Dims(x_dims.begin() + 2, x_dims.end());
  const std::size_t axes = s.sizes.size();
  const auto axes_count = static_cast<std::int64_t>(axes);
  const std::int64_t group = call.node->attr("group", std::int64_t{1}),
                     offset_group = call.node->attr("offset_group", std::int64_t{1});
  const std::int64_t channels = x_dims[1], outputs = y_dims[1], kernel = product_of(w_dims, 2, w_dims.size()),
                     plane = product_of(x_dims, 2, x_dims.size()),
                     points = product_of(y_dims, 2, y_dims.size());
  Dims offsets = {x_dims[0], offset_group * kernel * axes_count}, masks = {x_dims[0], offset_group * kernel};
  offsets.insert(offsets.end(), y_dims.begin() + 2, y_dims.end());
  masks.insert(masks.end(), y_dims.begin() + 2, y_dims.end());
  if (offset_group < 1 || channels % offset_group != 0 || call.in[2].dims != offsets ||
      (call.has(4) && call.in[4].dims != masks))
    throw make_error(ErrorCode::kBadFile, "offset {} or mask does not fit {} in {} offset groups",
                     to_string(call.in[2].dims), to_string(x_dims), offset_group);
  const std::vector<double> x = doubles_of(call.in[0]), w = doubles_of(call.in[1]),
                            move = doubles_of(call.in[2]);
  std::vector<double> bias, mask, y(static_cast<std::size_t>(call.out[0].size()));
  if (call.has(3)) bias = doubles_of(call.in[3]);
  if (call.has(4)) mask = doubles_of(call.in[4]);
  const std::int64_t group_c = w_dims[1], group_m = outputs / group, shared = channels / offset_group;
  call.pool->parallel_for(x_dims[0] * points, 4, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> at(axes), column(static_cast<std::size_t>(channels * kernel));
    std::vector<Sample> samples;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t n = i / points, p = i % points;
      for (std::int64_t gk = 0; gk < offset_group * kernel; ++gk) {
        std::int64_t rest_p = p, rest_k = gk % kernel;
        for (std::size_t a = axes; a-- > 0;) {
          const std::int64_t o = rest_p % y_dims[a + 2], k = rest_k % window.kernel[a];
          rest_p /= y_dims[a + 2];
          rest_k /= window.kernel[a];
          const std::int64_t entry =
              (n * offset_group * kernel + gk) * axes_count + static_cast<std::int64_t>(a);
          at[a] =
              static_cast<double>(o * window.strides[a] - window.pads_begin[a] + k * window.dilations[a]) +
              move[static_cast<std::size_t>(entry * points + p)];
        }
        s.taps(at.data(), samples);
        const double factor =
            mask.empty() ? 1 : mask[static_cast<std::size_t>((n * offset_group * kernel + gk) * points + p)];
        for (std::int64_t c = gk / kernel * shared; c < (gk / kernel + 1) * shared; ++c) {
          double sum = 0;
          for (const Sample& sample : samples)
            sum += sample.weight * x[static_cast<std::size_t>((n * channels + c) * plane + sample.place)];
          column[static_cast<std::size_t>(c * kernel + gk % kernel)] = sum * factor;
        }
      }
      for (std::int64_t m = 0; m < outputs; ++m) {
        const double* weight = w.data() + m * group_c * kernel;
        const double* values = column.data() + m / group_m * group_c * kernel;
        double sum = bias.empty() ? 0 : bias[static_cast<std::size_t>(m)];
        for (std::int64_t k = 0; k < group_c * kernel; ++k) sum += weight[k] * values[k];
        y[static_cast<std::size_t>((n * outputs + m) * points + p)] = sum;
      }
    }
  });
  write_doubles(call.out[0], y);
}

// --- AffineGrid

std::string affine_why_not(const OpCall& call) { return float_reason(call, {0}); }

void run_affine(const OpCall& call) {
  const Dims& dims = call.out[0].dims;  // [n, sizes..., axes]
  const std::size_t axes = dims.size() - 2;
  const bool align = call.node->attr("align_corners", std::int64_t{0}) != 0;
  const std::vector<double> theta = doubles_of(call.in[0]);
  std::vector<double> y(static_cast<std::size_t>(call.out[0].size())), place(axes + 1, 1);
  const std::int64_t points = product_of(dims, 1, dims.size() - 1);
  for (std::int64_t i = 0; i < dims[0] * points; ++i) {
    std::int64_t rest = i % points;
    for (std::size_t a = axes; a-- > 0;) {
      const std::int64_t size = dims[a + 1], at = rest % size;
      rest /= size;
      const auto steps = static_cast<double>(align ? std::max<std::int64_t>(1, size - 1) : size);
      place[axes - 1 - a] = -1 + (align ? 0 : 1 / steps) + 2 / steps * static_cast<double>(at);
    }
    for (std::size_t row = 0; row < axes; ++row) {
      double sum = 0;
      for (std::size_t k = 0; k <= axes; ++k)
        sum += theta[(static_cast<std::size_t>(i / points) * axes + row) * (axes + 1) + k] * place[k];
      y[static_cast<std::size_t>(i) * axes + row] = sum;
    }
  }
  write_doubles(call.out[0], y);
}

}  // namespace

void add_sampling_references(Registry& registry) {
  registry.add(
      {"", "GridSample", Backend::kCpu, "GridSample/cpu:reference", grid_why_not, nullptr, run_grid});
  registry.add(
      {"", "DeformConv", Backend::kCpu, "DeformConv/cpu:reference", deform_why_not, nullptr, run_deform});
  registry.add(
      {"", "AffineGrid", Backend::kCpu, "AffineGrid/cpu:reference", affine_why_not, nullptr, run_affine});
}

}  // namespace pare
