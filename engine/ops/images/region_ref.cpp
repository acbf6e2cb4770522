// RoiAlign, MaxRoiPool, NonMaxSuppression (sampling.h).
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "engine/ops/images/sampling.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

std::int64_t checked_batch(double index, std::int64_t batches) {
  if (!(index >= 0 && index < static_cast<double>(batches)))
    throw make_error(ErrorCode::kBadFile, "a box of image {} in a batch of {}", index, batches);
  return static_cast<std::int64_t>(index);
}

// --- RoiAlign

std::string align_why_not(const OpCall& call) {
  const std::string mode = call.node->attr("mode", "avg");
  if (mode != "avg" && mode != "max") return "mode " + mode;
  std::string reason = float_reason(call, {0, 1});
  return reason.empty() ? type_reason(call, 2, {DType::kI64}) : reason;
}

// How many samples a bin of `extent` elements takes on one axis.
std::int64_t sample_count(std::int64_t ratio, double extent) {
  constexpr double kMost = 1 << 16;  // far above any image; a box of infinity is refused, not walked
  if (ratio > 0) return ratio;
  const double count = std::ceil(extent);
  if (!(count <= kMost))
    throw make_error(ErrorCode::kBadFile, "a bin of a box has {} elements a side", extent);
  return std::max<std::int64_t>(0, static_cast<std::int64_t>(count));
}

// Four neighbours of (y, x), clamped into the image; none when it is more than one element outside.
int neighbours(double y, double x, std::int64_t height, std::int64_t width, Sample* out) {
  if (!(y >= -1 && y <= static_cast<double>(height) && x >= -1 && x <= static_cast<double>(width))) return 0;
  y = std::clamp(y, 0.0, static_cast<double>(height - 1));
  x = std::clamp(x, 0.0, static_cast<double>(width - 1));
  const auto top = static_cast<std::int64_t>(y), left = static_cast<std::int64_t>(x);
  const std::int64_t bottom = std::min(top + 1, height - 1), right = std::min(left + 1, width - 1);
  const double v = y - static_cast<double>(top), u = x - static_cast<double>(left);
  out[0] = {top * width + left, (1 - v) * (1 - u)};
  out[1] = {top * width + right, (1 - v) * u};
  out[2] = {bottom * width + left, v * (1 - u)};
  out[3] = {bottom * width + right, v * u};
  return 4;
}

void run_align(const OpCall& call) {
  const Dims &x_dims = call.in[0].dims, &y_dims = call.out[0].dims;
  const std::vector<double> x = doubles_of(call.in[0]), boxes = doubles_of(call.in[1]);
  const std::vector<std::int64_t> images = ints_of(call.in[2]);
  std::vector<double> y(static_cast<std::size_t>(call.out[0].size()), 0);
  const auto scale = static_cast<double>(call.node->attr("spatial_scale", 1.0F));
  const bool shifted = call.node->attr("coordinate_transformation_mode", "half_pixel") == "half_pixel",
             mean = call.node->attr("mode", "avg") == "avg";
  const std::int64_t ratio = call.node->attr("sampling_ratio", std::int64_t{0}), channels = x_dims[1],
                     height = x_dims[2], width = x_dims[3], rows = y_dims[2], columns = y_dims[3];
  if (height == 0 || width == 0) throw make_error(ErrorCode::kBadFile, "boxes in an empty image");
  for (std::int64_t r = 0; r < y_dims[0]; ++r) {
    const double* box = boxes.data() + r * 4;
    const std::int64_t image =
        checked_batch(static_cast<double>(images[static_cast<std::size_t>(r)]), x_dims[0]);
    const double left = box[0] * scale - (shifted ? 0.5 : 0), top = box[1] * scale - (shifted ? 0.5 : 0);
    double box_width = box[2] * scale - (shifted ? 0.5 : 0) - left,
           box_height = box[3] * scale - (shifted ? 0.5 : 0) - top;
    if (!shifted) {
      box_width = std::max(box_width, 1.0);
      box_height = std::max(box_height, 1.0);
    }
    const double bin_height = box_height / static_cast<double>(rows),
                 bin_width = box_width / static_cast<double>(columns);
    const std::int64_t down = sample_count(ratio, bin_height), along = sample_count(ratio, bin_width);
    const auto samples = static_cast<double>(std::max<std::int64_t>(1, down * along));
    call.pool->parallel_for(rows * columns, 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<double> best(static_cast<std::size_t>(channels));
      for (std::int64_t bin = begin; bin < end; ++bin) {
        std::fill(best.begin(), best.end(), 0.0);
        for (std::int64_t k = 0; k < down * along; ++k) {
          Sample four[4];
          const double v = (static_cast<double>(k / along) + 0.5) * bin_height / static_cast<double>(down),
                       u = (static_cast<double>(k % along) + 0.5) * bin_width / static_cast<double>(along);
          const int count =
              neighbours(top + static_cast<double>(bin / columns) * bin_height + v,
                         left + static_cast<double>(bin % columns) * bin_width + u, height, width, four);
          for (std::int64_t c = 0; c < channels; ++c) {
            const double* plane = x.data() + (image * channels + c) * height * width;
            double sum = 0, most = count == 0 ? 0 : -std::numeric_limits<double>::infinity();
            for (int i = 0; i < count; ++i) {
              const double part = four[i].weight * plane[four[i].place];
              sum += part;
              most = std::max(most, part);
            }
            double& value = best[static_cast<std::size_t>(c)];
            value = mean ? value + sum : k == 0 ? most : std::max(value, most);
          }
        }
        for (std::int64_t c = 0; c < channels; ++c)
          y[static_cast<std::size_t>((r * channels + c) * rows * columns + bin)] =
              best[static_cast<std::size_t>(c)] / (mean ? samples : 1);
      }
    });
  }
  write_doubles(call.out[0], y);
}

// --- MaxRoiPool

std::string max_why_not(const OpCall& call) { return float_reason(call, {0, 1}); }

// Elements [first, last) of bin `i` of `bins` over a side that begins at `start`.
void bin_range(std::int64_t i, std::int64_t bins, double start, double end, std::int64_t size,
               std::int64_t& first, std::int64_t& last) {
  const double each = std::max(end - start + 1, 1.0) / static_cast<double>(bins);
  const auto inside = [size](double v) {  // NaN: 0
    return v > 0 ? static_cast<std::int64_t>(std::min(v, static_cast<double>(size))) : std::int64_t{0};
  };
  first = inside(std::floor(static_cast<double>(i) * each) + start);
  last = inside(std::ceil(static_cast<double>(i + 1) * each) + start);
}

void run_max(const OpCall& call) {
  const Dims &x_dims = call.in[0].dims, &y_dims = call.out[0].dims;
  const std::vector<double> x = doubles_of(call.in[0]), boxes = doubles_of(call.in[1]);
  std::vector<double> y(static_cast<std::size_t>(call.out[0].size()));
  const auto scale = static_cast<double>(call.node->attr("spatial_scale", 1.0F));
  const std::int64_t channels = x_dims[1], height = x_dims[2], width = x_dims[3];
  std::size_t at = 0;
  for (std::int64_t r = 0; r < y_dims[0]; ++r) {
    const double* box = boxes.data() + r * 5;
    const std::int64_t image = checked_batch(box[0], x_dims[0]);
    double corner[4];
    for (int i = 0; i < 4; ++i) corner[i] = std::round(box[i + 1] * scale);
    for (std::int64_t c = 0; c < channels; ++c) {
      const double* plane = x.data() + (image * channels + c) * height * width;
      for (std::int64_t i = 0; i < y_dims[2]; ++i)
        for (std::int64_t j = 0; j < y_dims[3]; ++j) {
          std::int64_t top = 0, bottom = 0, left = 0, right = 0;
          bin_range(i, y_dims[2], corner[1], corner[3], height, top, bottom);
          bin_range(j, y_dims[3], corner[0], corner[2], width, left, right);
          const bool empty = bottom <= top || right <= left;
          double most = empty ? 0 : -std::numeric_limits<double>::infinity();
          for (std::int64_t v = top; v < bottom; ++v)
            for (std::int64_t u = left; u < right; ++u) most = std::max(most, plane[v * width + u]);
          y[at++] = most;
        }
    }
  }
  write_doubles(call.out[0], y);
}

// --- NonMaxSuppression

std::string suppression_why_not(const OpCall& call) {
  for (const int i : {0, 1, 3, 4}) {
    std::string reason = call.has(i) ? type_reason(call, i, {DType::kF32}) : std::string();
    if (!reason.empty()) return reason;
  }
  return {};
}

struct Box {
  float top = 0, left = 0, bottom = 0, right = 0;
  float area() const { return (bottom - top) * (right - left); }
};

Box box_of(const float* x, bool centred) {
  if (centred) return {x[1] - x[3] / 2, x[0] - x[2] / 2, x[1] + x[3] / 2, x[0] + x[2] / 2};
  return {std::min(x[0], x[2]), std::min(x[1], x[3]), std::max(x[0], x[2]), std::max(x[1], x[3])};
}

bool overlaps(const Box& a, const Box& b, float threshold) {
  const float height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top),
              width = std::min(a.right, b.right) - std::max(a.left, b.left);
  if (!(height > 0 && width > 0) || !(a.area() > 0 && b.area() > 0)) return false;
  const float both = height * width, either = a.area() + b.area() - both;
  return either > 0 && both / either > threshold;
}

void run_suppression(const OpCall& call) {
  const Dims &box_dims = call.in[0].dims, &score_dims = call.in[1].dims;
  const std::int64_t batch = box_dims[0], count = box_dims[1], classes = score_dims[1];
  const auto number = [&](int i, float otherwise) {
    return call.has(i) && call.in[static_cast<std::size_t>(i)].size() > 0 ? *call.input(i).as<float>()
                                                                          : otherwise;
  };
  const float threshold = number(3, 0), least = number(4, -std::numeric_limits<float>::infinity());
  const bool scored = call.has(4), centred = call.node->attr("center_point_box", std::int64_t{0}) != 0;
  const std::int64_t most = call.has(2) && call.in[2].size() > 0 ? ints_of(call.in[2])[0] : 0;
  std::vector<Box> boxes;
  for (std::int64_t i = 0; i < batch * count; ++i)
    boxes.push_back(box_of(call.in[0].as<float>() + i * 4, centred));
  std::vector<std::vector<std::int64_t>> chosen(static_cast<std::size_t>(batch * classes));
  call.pool->parallel_for(batch * classes, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float* scores = call.in[1].as<float>() + i * count;
      const Box* own = boxes.data() + i / classes * count;
      std::vector<std::int64_t> order;
      for (std::int64_t k = 0; k < count; ++k)
        if (!std::isnan(scores[k]) && (!scored || scores[k] > least)) order.push_back(k);
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return scores[a] > scores[b]; });
      auto& kept = chosen[static_cast<std::size_t>(i)];
      for (const std::int64_t k : order) {
        if (static_cast<std::int64_t>(kept.size()) >= most) break;
        const auto hides = [&](std::int64_t other) { return overlaps(own[k], own[other], threshold); };
        if (std::none_of(kept.begin(), kept.end(), hides)) kept.push_back(k);
      }
    }
  });
  std::int64_t total = 0;
  for (const auto& kept : chosen) total += static_cast<std::int64_t>(kept.size());
  auto* y = call.allocate(0, {total, 3}).mut<std::int64_t>();
  for (std::int64_t i = 0; i < batch * classes; ++i)
    for (const std::int64_t k : chosen[static_cast<std::size_t>(i)]) {
      *y++ = i / classes;
      *y++ = i % classes;
      *y++ = k;
    }
}

}  // namespace

void add_region_references(Registry& registry) {
  registry.add({"", "RoiAlign", Backend::kCpu, "RoiAlign/cpu:reference", align_why_not, nullptr, run_align});
  registry.add({"", "MaxRoiPool", Backend::kCpu, "MaxRoiPool/cpu:reference", max_why_not, nullptr, run_max});
  Kernel suppression = {
      "",      "NonMaxSuppression", Backend::kCpu, "NonMaxSuppression/cpu:reference", suppression_why_not,
      nullptr, run_suppression};
  suppression.allocates = true;
  registry.add(suppression);
}

}  // namespace pare
