#include "engine/ops/integer/qlinear.h"

#include <algorithm>
#include <tuple>

#include "engine/base/error.h"

namespace pare {
namespace {

bool is_code(DType type) { return type == DType::kI8 || type == DType::kU8; }

const float* one_float(const OpCall& call, int slot) {
  const TensorView& t = call.input(slot);
  return t.dtype == DType::kF32 && t.data != nullptr && t.size() == 1 ? t.as<float>() : nullptr;
}

// Empty when the zero point is absent, or constant, of the operand's type, and the same for all columns.
std::string zero_point_problem(const OpCall& call, int slot, DType operand, const char* what) {
  const TensorView& t = call.input(slot);
  if (!t.present()) return "";
  if (t.data == nullptr || t.dtype != operand)
    return fmt::format("the zero point of {} is no constant of its type", what);
  const auto* codes = t.as<std::uint8_t>();
  const std::int64_t n = t.size();
  if (n == 0 || std::any_of(codes, codes + n, [&](std::uint8_t c) { return c != codes[0]; }))
    return fmt::format("the zero points of {} are not all the same", what);
  return "";
}

std::int32_t zero_point(const TensorView& t) {
  if (!t.present()) return 0;
  return t.dtype == DType::kI8 ? *t.as<std::int8_t>() : *t.as<std::uint8_t>();
}

}  // namespace

QType q_type(const OpCall& call, int slot, int zero_slot) {
  return {call.input(slot).dtype == DType::kI8, zero_point(call.input(zero_slot))};
}

std::string qlinear_why_not(const OpCall& call, std::int64_t k, std::int64_t columns) {
  if (!is_code(call.input(kQX).dtype) || !is_code(call.input(kQW).dtype))
    return "operands are not both int8 or uint8";
  if (one_float(call, kQXScale) == nullptr) return "the scale of x is not one constant float32";
  const TensorView& w_scale = call.input(kQWScale);
  if (w_scale.dtype != DType::kF32 || w_scale.data == nullptr ||
      (w_scale.size() != 1 && w_scale.size() != columns))
    return "the scale of w is not a constant float32 for the tensor or for each column";
  for (const auto& [slot, operand, what] : {std::tuple(kQXZero, kQX, "x"), std::tuple(kQWZero, kQW, "w")})
    if (std::string why = zero_point_problem(call, slot, call.input(operand).dtype, what); !why.empty())
      return why;
  const QType x = q_type(call, kQX, kQXZero), w = q_type(call, kQW, kQWZero);
  if (k > qgemm_max_k(x, w))
    return fmt::format("sums of {} products may leave int32 (at most {})", k, qgemm_max_k(x, w));

  const TensorView& bias = call.input(kQBias);
  if (bias.present() && (bias.dtype != DType::kF32 || bias.data == nullptr || bias.size() != columns))
    return "the bias is not a constant float32 for each column";
  const DType y = call.out[0].dtype;
  if (call.has(kQYScale)) {
    if (one_float(call, kQYScale) == nullptr) return "the scale of y is not one constant float32";
    if (!is_code(y)) return "a quantized y is int8 or uint8";
    if (std::string why = zero_point_problem(call, kQYZero, y, "y"); !why.empty()) return why;
  } else if (y != DType::kF32) {
    return "y without a scale is float32";
  }
  if (call.has(kQResidual)) {
    const TensorView& r = call.input(kQResidual);
    if (r.dims != call.out[0].dims) return "the residual has another shape than y";
    if (r.dtype != DType::kF32) {
      if (!is_code(r.dtype)) return "the residual is not float32, int8 or uint8";
      if (one_float(call, kQResidualScale) == nullptr)
        return "the scale of the residual is not one constant float32";
      if (std::string why = zero_point_problem(call, kQResidualZero, r.dtype, "the residual"); !why.empty())
        return why;
    }
  }
  Activation activation;
  return read_activation(*call.node, activation)
             ? ""
             : fmt::format("unknown activation {}", call.node->attr("activation", ""));
}

QFinishPlan plan_finish(const OpCall& call, std::int64_t columns, std::int64_t groups) {
  QFinishPlan plan;
  plan.columns = columns / groups;
  plan.padded = (plan.columns + kQPanel - 1) / kQPanel * kQPanel;
  const TensorView &w_scale = call.input(kQWScale), &bias = call.input(kQBias);
  const float x_scale = *one_float(call, kQXScale);
  const bool each = w_scale.size() > 1;
  plan.scale.assign(static_cast<std::size_t>(groups * plan.padded), 0.0f);
  if (bias.present()) plan.bias = plan.scale;
  for (std::int64_t c = 0; c < columns; ++c) {
    const auto at = static_cast<std::size_t>(c / plan.columns * plan.padded + c % plan.columns);
    plan.scale[at] = x_scale * w_scale.as<float>()[each ? c : 0];
    if (bias.present()) plan.bias[at] = bias.as<float>()[c];
  }

  QFinish& f = plan.constant;
  read_activation(*call.node, f.activation);
  f.y_type = call.out[0].dtype;
  if (call.has(kQYScale)) {
    f.y_scale = *one_float(call, kQYScale);
    f.y_zero = zero_point(call.input(kQYZero));
  }
  f.residual_type = call.input(kQResidual).dtype;
  if (call.has(kQResidual) && f.residual_type != DType::kF32) {
    f.residual_scale = *one_float(call, kQResidualScale);
    f.residual_zero = zero_point(call.input(kQResidualZero));
  }
  return plan;
}

QFinish QFinishPlan::finish_of(const OpCall& call, std::int64_t group, std::int64_t row_stride) const {
  QFinish f = constant;
  f.scale = scale.data() + group * padded;
  f.bias = bias.empty() ? nullptr : bias.data() + group * padded;
  const auto advance = [&](void* data, DType type) {
    return static_cast<std::uint8_t*>(data) + group * columns * (type == DType::kF32 ? 4 : 1);
  };
  f.y = advance(call.out[0].data, f.y_type);
  f.y_stride = row_stride;
  if (call.has(kQResidual)) {
    f.residual = advance(call.input(kQResidual).data, f.residual_type);
    f.residual_stride = row_stride;
  }
  return f;
}

}  // namespace pare
