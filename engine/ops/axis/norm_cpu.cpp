// Normalizations over contiguous rows, on all threads.
#include <algorithm>
#include <cmath>

#include "engine/base/grain.h"
#include "engine/ops/axis/norm.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

std::int64_t row_grain(std::int64_t n) { return grain_for(kElementGrain / 2, n); }

// --- LayerNormalization, RMSNormalization

std::size_t first_axis(const OpCall& call) {
  return static_cast<std::size_t>(
      axis_of(*call.node, "axis", -1, static_cast<std::int64_t>(call.in[0].dims.size())));
}

std::string layer_why_not(const OpCall& call) {
  std::string reason = type_reason(call, 0, {DType::kF32, DType::kF16, DType::kBF16});
  if (!reason.empty()) return reason;
  const Dims& dims = call.in[0].dims;
  const std::int64_t n = product_of(dims, first_axis(call), dims.size());
  if (n == 0) return "empty rows";
  for (int i = 1; i <= 2; ++i) {
    if (!call.has(i)) continue;
    if (!is_small_float(call.in[static_cast<std::size_t>(i)].dtype)) return "a parameter that is float64";
    if (call.in[static_cast<std::size_t>(i)].size() != n)
      return "a parameter that is broadcast over the normalized axes";
  }
  return {};
}

void run_layer(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const std::size_t axis = first_axis(call);
  const std::int64_t rows = product_of(x.dims, 0, axis), n = product_of(x.dims, axis, x.dims.size());
  const float epsilon = call.node->attr("epsilon", 1e-5F);
  const bool centered = call.node->op == "LayerNormalization";
  std::vector<float> scale_room, bias_room;
  const float* scale = all_floats(call.in[1], scale_room);
  const float* bias = call.has(2) ? all_floats(call.in[2], bias_room) : nullptr;
  const auto statistics = PARE_SIMD_PICK(row_statistics);
  const auto normalize = PARE_SIMD_PICK(normalize_row);
  float* means = call.out.size() > 1 && call.out[1].present() ? call.out[1].mut<float>() : nullptr;
  float* inverses = call.out.size() > 2 && call.out[2].present() ? call.out[2].mut<float>() : nullptr;
  call.pool->parallel_for(rows, row_grain(n), [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> in, out;
    if (x.dtype != DType::kF32) {
      in.resize(static_cast<std::size_t>(n));
      out.resize(static_cast<std::size_t>(n));
    }
    for (std::int64_t r = begin; r < end; ++r) {
      const float* from = read_floats(x, r * n, n, in.data());
      float* to = floats_to_write(y, r * n, out.data());
      const RowStatistics s = statistics(from, n, epsilon, centered);
      normalize(from, s, scale, bias, to, n);
      write_floats(y, r * n, n, to);
      if (means != nullptr) means[r] = s.mean;
      if (inverses != nullptr) inverses[r] = s.inverse;
    }
  });
}

// --- per channel: Instance-, Group-, BatchNormalization

std::string channel_why_not(const OpCall& call) {
  std::string reason = type_reason(call, 0, {DType::kF32});
  for (int i = 1; i < static_cast<int>(call.in.size()) && reason.empty(); ++i)
    reason = type_reason(call, i, {DType::kF32});
  if (reason.empty() && call.in[0].dims.size() < 2) return "rank below 2";
  if (reason.empty() && call.in[0].size() == 0) return "no elements";
  return reason;
}

std::string batch_why_not(const OpCall& call) {
  if (call.node->attr("training_mode", std::int64_t{0}) != 0) return "training mode";
  return channel_why_not(call);
}

// Instance: a group is one channel.
void run_group(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const std::int64_t channels = x.dims[1], plane = product_of(x.dims, 2, x.dims.size());
  const std::int64_t groups =
      call.node->op == "InstanceNormalization" ? channels : call.node->attr("num_groups", std::int64_t{1});
  const std::int64_t each = channels / groups, n = each * plane;
  const float epsilon = call.node->attr("epsilon", 1e-5F);
  const float *scale = call.in[1].as<float>(), *bias = call.in[2].as<float>();
  const auto statistics = PARE_SIMD_PICK(row_statistics);
  const auto affine = PARE_SIMD_PICK(affine_row);
  call.pool->parallel_for(x.dims[0] * groups, row_grain(n), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t g = begin; g < end; ++g) {
      const float* from = x.as<float>() + g * n;
      const RowStatistics s = statistics(from, n, epsilon, true);
      for (std::int64_t c = 0; c < each; ++c) {
        const std::int64_t channel = g % groups * each + c;
        const float factor = s.inverse * scale[channel];
        affine(from + c * plane, factor, std::fma(-s.mean, factor, bias[channel]),
               y.mut<float>() + g * n + c * plane, plane);
      }
    }
  });
}

void run_batch(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const std::int64_t channels = x.dims[1], plane = product_of(x.dims, 2, x.dims.size());
  const float epsilon = call.node->attr("epsilon", 1e-5F);
  const float *scale = call.in[1].as<float>(), *bias = call.in[2].as<float>();
  const float *mean = call.in[3].as<float>(), *var = call.in[4].as<float>();
  const auto affine = PARE_SIMD_PICK(affine_row);
  call.pool->parallel_for(x.dims[0] * channels, row_grain(plane), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      const std::int64_t c = k % channels;
      const float factor = scale[c] / std::sqrt(var[c] + epsilon);
      affine(x.as<float>() + k * plane, factor, std::fma(-mean[c], factor, bias[c]),
             y.mut<float>() + k * plane, plane);
    }
  });
}

}  // namespace

void add_norm_kernels(Registry& registry) {
  Kernel kernel;
  kernel.in_place = 1;
  const auto add = [&](const char* op, std::string (*reason)(const OpCall&), void (*run)(const OpCall&)) {
    kernel.op = op;
    kernel.name = kernel_name(op, "vector");
    kernel.why_not = reason;
    kernel.run = run;
    registry.add(kernel);
  };
  add("LayerNormalization", layer_why_not, run_layer);
  add("RMSNormalization", layer_why_not, run_layer);
  add("InstanceNormalization", channel_why_not, run_group);
  add("GroupNormalization", channel_why_not, run_group);
  add("BatchNormalization", batch_why_not, run_batch);
}

}  // namespace pare
