#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/grain.h"
#include "engine/ops/add_kernel.h"
#include "engine/ops/images/pool.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

// inside(place in the plane) for what lies in the input, padding() for what lies in its padding.
template <typename Inside, typename Padding>
void for_window(const PlanePool& s, const PlaneSizes& o, Inside inside, Padding padding) {
  for (std::int64_t a = 0; a < s.kernel[0]; ++a)
    for (std::int64_t b = 0; b < s.kernel[1]; ++b)
      for (std::int64_t c = 0; c < s.kernel[2]; ++c) {
        const PlaneSizes k = {a, b, c};
        bool in = true, padded = true;
        std::int64_t place = 0;
        for (std::size_t i = 0; i < 3; ++i) {
          const std::int64_t at = o[i] * s.stride[i] - s.begin[i] + k[i] * s.dilation[i];
          in = in && at >= 0 && at < s.in[i];
          padded = padded && at < s.in[i] + s.end[i];
          place = place * s.in[i] + at;
        }
        if (in)
          inside(place);
        else if (padded)
          padding();
      }
}

template <typename Body>
void for_outputs(const OpCall& call, const PlanePool& s, Body body) {
  const std::int64_t each = volume(s.out);
  call.pool->parallel_for(s.planes, grain_for(kElementGrain, each * volume(s.kernel)),
                          [&](std::int64_t begin, std::int64_t end) {
                            for (std::int64_t plane = begin; plane < end; ++plane) {
                              std::int64_t at = plane * each;
                              PlaneSizes o;
                              for (o[0] = 0; o[0] < s.out[0]; ++o[0])
                                for (o[1] = 0; o[1] < s.out[1]; ++o[1])
                                  for (o[2] = 0; o[2] < s.out[2]; ++o[2]) body(plane, o, at++);
                            }
                          });
}

template <typename T>
void max_pool(const OpCall& call, const T* x, T* y) {
  const PlanePool s = plane_pool(call);
  std::int64_t* indices =
      call.out.size() > 1 && call.out[1].present() ? call.out[1].mut<std::int64_t>() : nullptr;
  const bool columns_first = call.node->attr("storage_order", std::int64_t{0}) != 0;
  const std::int64_t size = volume(s.in);
  for_outputs(call, s, [&](std::int64_t plane, const PlaneSizes& o, std::int64_t at) {
    const T* image = x + plane * size;
    std::int64_t best = -1;
    for_window(
        s, o,
        [&](std::int64_t place) {
          bool nan = false, settled = false;
          if constexpr (std::is_floating_point_v<T>) {
            nan = image[place] != image[place];
            settled = best >= 0 && image[best] != image[best];
          }
          if (best < 0 || (!settled && (nan || image[place] > image[best]))) best = place;
        },
        [] {});
    // A window that holds nothing but padding has the lowest value of its type, as ONNX pads with it.
    const T lowest =
        std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
    y[at] = best < 0 ? lowest : image[best];
    if (indices == nullptr) return;
    if (columns_first && best >= 0) {
      const std::int64_t c = best % s.in[2], b = best / s.in[2] % s.in[1], a = best / s.in[2] / s.in[1];
      best = (c * s.in[1] + b) * s.in[0] + a;
    }
    indices[at] = best < 0 ? -1 : plane * size + best;
  });
}

std::string max_why_not(const OpCall& call) {
  const std::size_t rank = call.in[0].dims.size();
  if (rank < 2 || rank > 5) return "more than three spatial axes";
  if (call.in[0].dtype == DType::kBool) return "bool";
  if (is_small_float(call.in[0].dtype) || with_native_type(call.in[0].dtype, [](auto) {})) return {};
  return std::string("input 0 is ") + name(call.in[0].dtype);
}

void run_max(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  if (with_native_type(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        max_pool(call, x.as<T>(), y.mut<T>());
      }))
    return;
  std::vector<float> in, out(static_cast<std::size_t>(y.size()));
  max_pool(call, all_floats(x, in), out.data());
  write_floats(y, 0, y.size(), out.data());
}

template <typename T>
void average_pool(const OpCall& call, const T* x, T* y) {
  const PlanePool s = plane_pool(call);
  const bool count_padding =
      !is_global_pool(call) && call.node->attr("count_include_pad", std::int64_t{0}) != 0;
  for_outputs(call, s, [&](std::int64_t plane, const PlaneSizes& o, std::int64_t at) {
    const T* image = x + plane * volume(s.in);
    double sum = 0;
    std::int64_t count = 0;
    for_window(
        s, o,
        [&](std::int64_t place) {
          sum += static_cast<double>(image[place]);
          ++count;
        },
        [&] { count += count_padding ? 1 : 0; });
    y[at] = static_cast<T>(sum / static_cast<double>(count));
  });
}

template <typename T>
void lp_pool(const OpCall& call, const T* x, T* y) {
  const PlanePool s = plane_pool(call);
  const auto p = static_cast<double>(call.node->attr("p", std::int64_t{2}));
  for_outputs(call, s, [&](std::int64_t plane, const PlaneSizes& o, std::int64_t at) {
    const T* image = x + plane * volume(s.in);
    double sum = 0;
    for_window(
        s, o, [&](std::int64_t place) { sum += std::pow(std::fabs(static_cast<double>(image[place])), p); },
        [] {});
    y[at] = static_cast<T>(std::pow(sum, 1 / p));
  });
}

std::string float_why_not(const OpCall& call) {
  const std::size_t rank = call.in[0].dims.size();
  if (rank < 2 || rank > 5) return "more than three spatial axes";
  return type_reason(call, 0, {DType::kF32, DType::kF16, DType::kBF16, DType::kF64});
}

template <typename Body>
void in_floats(const OpCall& call, Body body) {
  const TensorView &x = call.in[0], &y = call.out[0];
  if (x.dtype == DType::kF64) return body(x.as<double>(), y.mut<double>());
  if (x.dtype == DType::kF32) return body(x.as<float>(), y.mut<float>());
  std::vector<float> in, out(static_cast<std::size_t>(y.size()));
  body(all_floats(x, in), out.data());
  write_floats(y, 0, y.size(), out.data());
}

void run_average(const OpCall& call) {
  in_floats(call, [&](const auto* x, auto* y) { average_pool(call, x, y); });
}
void run_lp(const OpCall& call) {
  in_floats(call, [&](const auto* x, auto* y) { lp_pool(call, x, y); });
}

}  // namespace

void add_pool_references(Registry& registry) {
  add_kernel(registry, "MaxPool", "reference", max_why_not, run_max);
  add_kernel(registry, "GlobalMaxPool", "reference", max_why_not, run_max);
  add_kernel(registry, "AveragePool", "reference", float_why_not, run_average);
  add_kernel(registry, "GlobalAveragePool", "reference", float_why_not, run_average);
  add_kernel(registry, "LpPool", "reference", float_why_not, run_lp);
  add_kernel(registry, "GlobalLpPool", "reference", float_why_not, run_lp);
}

}  // namespace pare
