// The normalizations from their formulas, in double.
#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/ops/add_kernel.h"
#include "engine/ops/axis/norm.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

double number_at(const TensorView& view, std::int64_t i) {
  if (view.dtype == DType::kF64) return view.as<double>()[i];
  float room = 0;
  return static_cast<double>(*read_floats(view, i, 1, &room));
}

void put_number(const TensorView& view, std::int64_t i, double value) {
  if (view.dtype == DType::kF64) {
    view.mut<double>()[i] = value;
    return;
  }
  float room = 0;
  float* to = floats_to_write(view, i, &room);
  *to = static_cast<float>(value);
  write_floats(view, i, 1, to);
}

std::string why_not(const OpCall& call) {
  for (int i = 0; i < static_cast<int>(call.in.size()); ++i) {
    if (!call.has(i)) continue;
    std::string reason = type_reason(call, i, {DType::kF32, DType::kF16, DType::kBF16, DType::kF64});
    if (!reason.empty()) return reason;
  }
  return {};
}

struct Moments {
  double mean = 0, variance = 0;
};

// place(k): where the k-th of n elements lies.
template <typename Place>
Moments moments(const TensorView& x, std::int64_t n, bool centered, Place place) {
  Moments m;
  if (centered)
    for (std::int64_t k = 0; k < n; ++k) m.mean += number_at(x, place(k)) / static_cast<double>(n);
  for (std::int64_t k = 0; k < n; ++k) {
    const double d = number_at(x, place(k)) - m.mean;
    m.variance += d * d / static_cast<double>(n);
  }
  return m;
}

void run_layer(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const auto rank = static_cast<std::int64_t>(x.dims.size());
  const auto axis = static_cast<std::size_t>(axis_of(*call.node, "axis", -1, rank));
  const std::int64_t rows = product_of(x.dims, 0, axis), n = product_of(x.dims, axis, x.dims.size());
  const auto epsilon = static_cast<double>(call.node->attr("epsilon", 1e-5F));
  const bool centered = call.node->op == "LayerNormalization";
  // Scale and bias broadcast to x.
  const TensorView& bias = call.input(2);
  const Dims none;
  const Dims* inputs[] = {&call.in[1].dims, bias.present() ? &bias.dims : &none};
  const BroadcastPlan plan = plan_broadcast(x.dims, inputs, 2);
  for (std::int64_t r = 0; r < rows; ++r) {
    const Moments m = moments(x, n, centered, [&](std::int64_t k) { return r * n + k; });
    const double inverse = 1 / std::sqrt(m.variance + epsilon);
    for_each_row(plan, r * n, (r + 1) * n, [&](std::int64_t at, const auto& offset, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        double value = (number_at(x, at + i) - m.mean) * inverse;
        value *= number_at(call.in[1], offset[0] + (plan.repeats(0) ? 0 : i));
        if (bias.present()) value += number_at(bias, offset[1] + (plan.repeats(1) ? 0 : i));
        put_number(y, at + i, value);
      }
    });
    if (call.out.size() > 1 && call.out[1].present()) put_number(call.out[1], r, m.mean);
    if (call.out.size() > 2 && call.out[2].present()) put_number(call.out[2], r, inverse);
  }
}

void run_group(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  if (x.size() == 0) return;
  const std::int64_t channels = x.dims[1], plane = product_of(x.dims, 2, x.dims.size());
  const std::int64_t groups =
      call.node->op == "InstanceNormalization" ? channels : call.node->attr("num_groups", std::int64_t{1});
  const std::int64_t each = channels / groups, n = each * plane;
  const auto epsilon = static_cast<double>(call.node->attr("epsilon", 1e-5F));
  for (std::int64_t g = 0; g < x.dims[0] * groups; ++g) {
    const Moments m = moments(x, n, true, [&](std::int64_t k) { return g * n + k; });
    for (std::int64_t k = 0; k < n; ++k) {
      const std::int64_t channel = g % groups * each + k / plane;
      const double value = (number_at(x, g * n + k) - m.mean) / std::sqrt(m.variance + epsilon);
      put_number(y, g * n + k, value * number_at(call.in[1], channel) + number_at(call.in[2], channel));
    }
  }
}

std::string batch_why_not(const OpCall& call) {
  if (call.node->attr("training_mode", std::int64_t{0}) != 0) return "training mode";
  return why_not(call);
}

void run_batch(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const std::int64_t channels = x.dims[1], plane = product_of(x.dims, 2, x.dims.size()), count = x.size();
  const auto epsilon = static_cast<double>(call.node->attr("epsilon", 1e-5F));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t c = i / plane % channels;
    const double normal =
        (number_at(x, i) - number_at(call.in[3], c)) / std::sqrt(number_at(call.in[4], c) + epsilon);
    put_number(y, i, normal * number_at(call.in[1], c) + number_at(call.in[2], c));
  }
}

std::string training_why_not(const OpCall& call) {
  return call.node->attr("training_mode", std::int64_t{0}) == 0 ? "no training" : why_not(call);
}

// With the batch's own mean and variance; running = running * momentum + own * (1 - momentum).
void run_batch_training(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const std::int64_t channels = x.dims[1], plane = product_of(x.dims, 2, x.dims.size()),
                     n = x.dims[0] * plane;
  const auto epsilon = static_cast<double>(call.node->attr("epsilon", 1e-5F));
  const auto momentum = static_cast<double>(call.node->attr("momentum", 0.9F));
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto place = [&](std::int64_t k) { return (k / plane * channels + c) * plane + k % plane; };
    const Moments m = moments(x, n, true, place);
    const double inverse = 1 / std::sqrt(m.variance + epsilon);
    for (std::int64_t k = 0; k < n; ++k)
      put_number(
          y, place(k),
          (number_at(x, place(k)) - m.mean) * inverse * number_at(call.in[1], c) + number_at(call.in[2], c));
    const double own[] = {m.mean, m.variance};
    for (std::size_t i = 0; i < 2; ++i)
      if (call.out.size() > i + 1 && call.out[i + 1].present())
        put_number(call.out[i + 1], c, number_at(call.in[i + 3], c) * momentum + own[i] * (1 - momentum));
  }
}

void run_local_response(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const std::int64_t size = call.node->attr("size", std::int64_t{0});
  if (size < 1) throw make_error(ErrorCode::kBadFile, "attribute size is {}", size);
  const auto alpha = static_cast<double>(call.node->attr("alpha", 1e-4F)) / static_cast<double>(size);
  const auto beta = static_cast<double>(call.node->attr("beta", 0.75F)),
             bias = static_cast<double>(call.node->attr("bias", 1.0F));
  const std::int64_t channels = x.dims[1], plane = product_of(x.dims, 2, x.dims.size());
  call.pool->parallel_for(x.dims[0] * plane, 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto place = [&](std::int64_t c) { return (i / plane * channels + c) * plane + i % plane; };
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::int64_t first = std::max<std::int64_t>(0, c - (size - 1) / 2),
                           last = std::min(channels - 1, c + size / 2);
        double sum = 0;
        for (std::int64_t k = first; k <= last; ++k) sum += number_at(x, place(k)) * number_at(x, place(k));
        put_number(y, place(c), number_at(x, place(c)) / std::pow(bias + alpha * sum, beta));
      }
    }
  });
}

void run_lp(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const auto axis =
      static_cast<std::size_t>(axis_of(*call.node, "axis", -1, static_cast<std::int64_t>(x.dims.size())));
  const std::int64_t outer = product_of(x.dims, 0, axis), n = x.dims[axis],
                     inner = product_of(x.dims, axis + 1, x.dims.size());
  const auto p = static_cast<double>(call.node->attr("p", std::int64_t{2}));
  for (std::int64_t o = 0; o < outer * inner; ++o) {
    const auto place = [&](std::int64_t k) { return (o / inner * n + k) * inner + o % inner; };
    double sum = 0;
    for (std::int64_t k = 0; k < n; ++k) sum += std::pow(std::fabs(number_at(x, place(k))), p);
    const double length = std::pow(sum, 1 / p);
    for (std::int64_t k = 0; k < n; ++k)
      put_number(y, place(k), length == 0 ? 0 : number_at(x, place(k)) / length);
  }
}

void run_mean_variance(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  std::vector<std::int64_t> axes = call.node->attr_ints("axes");
  if (axes.empty()) axes = {0, 2, 3};
  const auto rank = static_cast<std::int64_t>(x.dims.size());
  std::vector<bool> reduced(x.dims.size(), false);
  for (const std::int64_t axis : axes) {
    if (axis < -rank || axis >= rank) throw make_error(ErrorCode::kBadFile, "axis {} of rank {}", axis, rank);
    reduced[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)] = true;
  }
  const std::int64_t count = x.size();
  // The group of an element: its index with the reduced axes left out.
  const auto group = [&](std::int64_t i) {
    std::int64_t g = 0, stride = 1;
    for (std::size_t k = x.dims.size(); k-- > 0;) {
      if (!reduced[k]) {
        g += i % x.dims[k] * stride;
        stride *= x.dims[k];
      }
      i /= x.dims[k];
    }
    return static_cast<std::size_t>(g);
  };
  std::vector<double> sum(static_cast<std::size_t>(count), 0), squares(sum), members(sum);
  for (std::int64_t i = 0; i < count; ++i) {
    sum[group(i)] += number_at(x, i);
    members[group(i)] += 1;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const double d = number_at(x, i) - sum[group(i)] / members[group(i)];
    squares[group(i)] += d * d;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t g = group(i);
    put_number(y, i, (number_at(x, i) - sum[g] / members[g]) / (std::sqrt(squares[g] / members[g]) + 1e-9));
  }
}

}  // namespace

void add_norm_references(Registry& registry) {
  add_kernel(registry, "LayerNormalization", "reference", why_not, run_layer);
  add_kernel(registry, "RMSNormalization", "reference", why_not, run_layer);
  add_kernel(registry, "InstanceNormalization", "reference", why_not, run_group);
  add_kernel(registry, "GroupNormalization", "reference", why_not, run_group);
  add_kernel(registry, "BatchNormalization", "reference", batch_why_not, run_batch);
  add_kernel(registry, "BatchNormalization", "training", training_why_not, run_batch_training);
  add_kernel(registry, "LRN", "reference", why_not, run_local_response);
  add_kernel(registry, "LpNormalization", "reference", why_not, run_lp);
  add_kernel(registry, "MeanVarianceNormalization", "reference", why_not, run_mean_variance);
}

}  // namespace pare
