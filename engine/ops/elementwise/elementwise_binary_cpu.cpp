// Broadcasting operators on all threads, row by row (broadcast.h).
#include <algorithm>

#include "engine/base/error.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/elementwise/elementwise_binary.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

BinaryOp op_of(const OpCall& call) {
  BinaryOp op = BinaryOp::kAdd;
  PARE_ASSERT(binary_op(*call.node, op));
  return op;
}

BroadcastPlan plan_of(const OpCall& call, const TensorView& a, const TensorView& b) {
  const Dims* dims[] = {&a.dims, &b.dims};
  return plan_broadcast(call.out[0].dims, dims, 2);
}

// --- float32, and float16 and bfloat16 through it

std::string vector_why_not(const OpCall& call) {
  const BinaryOp op = op_of(call);
  if (!has_binary_f32(op)) return "has no vector code";
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    std::string reason = type_reason(call, static_cast<int>(i), {DType::kF32, DType::kF16, DType::kBF16});
    if (!reason.empty()) return reason;
  }
  if (call.in[0].dtype != DType::kF32 && call.in.size() > 2) return "more than two inputs, not float32";
  if (op == BinaryOp::kPow) {
    const TensorView& exponent = call.in[1];
    if (exponent.data == nullptr || exponent.dtype != DType::kF32 || exponent.size() != 1)
      return "the exponent is no constant float32 number";
    if (!is_simple_exponent(*exponent.as<float>())) return "the exponent is none of -1, 0.5, 1, 2, 3";
    if (call.in[0].dims != call.out[0].dims) return "the base is broadcast";
  }
  return {};
}

// y = op(a, b); y is the output or what stands in it.
void vector_pass(const OpCall& call, BinaryOp op, const TensorView& a, const TensorView& b) {
  const TensorView& y = call.out[0];
  const BroadcastPlan plan = plan_of(call, a, b);
  const auto row = PARE_SIMD_PICK(binary_f32);
  // A scalar exponent of shape [1,1,1,1] may leave nothing but one-element rows; both sides then repeat.
  const bool a_repeats = plan.repeats(0) && op != BinaryOp::kPow, b_repeats = plan.repeats(1);
  call.pool->parallel_for(plan.count, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    float a_room[kFloatChunk], b_room[kFloatChunk], y_room[kFloatChunk];
    for_each_row(plan, begin, end, [&](std::int64_t at, const auto& offset, std::int64_t n) {
      if (a.dtype == DType::kF32 && b.dtype == DType::kF32)
        return row(op, a.as<float>() + offset[0], a_repeats, b.as<float>() + offset[1], b_repeats,
                   y.mut<float>() + at, n);
      for (std::int64_t i = 0; i < n; i += kFloatChunk) {
        const std::int64_t length = std::min(kFloatChunk, n - i);
        const float* pa =
            a_repeats ? read_floats(a, offset[0], 1, a_room) : read_floats(a, offset[0] + i, length, a_room);
        const float* pb =
            b_repeats ? read_floats(b, offset[1], 1, b_room) : read_floats(b, offset[1] + i, length, b_room);
        row(op, pa, a_repeats, pb, b_repeats, y_room, length);
        write_floats(y, at + i, length, y_room);
      }
    });
  });
}

void run_vector(const OpCall& call) {
  const BinaryOp op = op_of(call);
  const TensorView& y = call.out[0];
  if (call.in.size() == 1) {
    std::copy_n(call.in[0].as<std::byte>(), byte_count(y.dtype, y.dims), y.mut<std::byte>());
    return;
  }
  vector_pass(call, op, call.in[0], call.in[1]);
  for (std::size_t i = 2; i < call.in.size(); ++i) vector_pass(call, op, y, call.in[i]);
  if (call.node->op == "Mean") {
    const float parts = static_cast<float>(call.in.size());
    const TensorView divisor{DType::kF32, {}, const_cast<float*>(&parts)};
    if (y.dtype == DType::kF32) vector_pass(call, BinaryOp::kDiv, y, divisor);
  }
}

std::string mean_why_not(const OpCall& call) {
  if (call.input(0).dtype != DType::kF32) return "the sum must stay in float32 until it is divided";
  return vector_why_not(call);
}

// --- every other number type

std::string scalar_why_not(const OpCall& call) {
  const BinaryOp op = op_of(call);
  if (call.in.size() != 2) return "needs two inputs";
  if (call.in[0].dtype != call.in[1].dtype) return "inputs of two types";
  if (!with_native_type(call.in[0].dtype, [](auto) {}))
    return std::string("input 0 is ") + name(call.in[0].dtype) + ", needs a number type of C++";
  if ((call.in[0].dtype == DType::kBool) != is_logical(op) && op != BinaryOp::kEqual)
    return is_logical(op) ? "needs bool" : "bool takes no arithmetic";
  if (is_bitwise(op) && is_float(call.in[0].dtype)) return "needs integers";
  return {};
}

template <typename T>
T number_value(BinaryOp op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(binary_value(op, static_cast<double>(a), static_cast<double>(b)));
  else
    return integer_binary_value(op, a, b);
}

// One loop an operator and a way to repeat: the compiler makes vectors of them.
template <typename T, typename Compare>
void compare_row(const T* a, bool a_repeats, const T* b, bool b_repeats, std::uint8_t* y, std::int64_t n,
                 Compare compare) {
  if (a_repeats || b_repeats) {
    const T one = a_repeats ? *a : *b;
    if (a_repeats && b_repeats)
      std::fill_n(y, n, compare(*a, *b) ? std::uint8_t{1} : std::uint8_t{0});
    else if (a_repeats)
      for (std::int64_t i = 0; i < n; ++i) y[i] = compare(one, b[i]) ? 1 : 0;
    else
      for (std::int64_t i = 0; i < n; ++i) y[i] = compare(a[i], one) ? 1 : 0;
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) y[i] = compare(a[i], b[i]) ? 1 : 0;
}

template <typename T>
void compare_rows(BinaryOp op, const T* a, bool a_repeats, const T* b, bool b_repeats, std::uint8_t* y,
                  std::int64_t n) {
  const auto run = [&](auto compare) { compare_row(a, a_repeats, b, b_repeats, y, n, compare); };
  switch (op) {
    case BinaryOp::kLess:
      return run([](T x, T z) { return x < z; });
    case BinaryOp::kLessOrEqual:
      return run([](T x, T z) { return x <= z; });
    case BinaryOp::kGreater:
      return run([](T x, T z) { return x > z; });
    case BinaryOp::kGreaterOrEqual:
      return run([](T x, T z) { return x >= z; });
    default:
      return run([](T x, T z) { return x == z; });
  }
}

void run_scalar(const OpCall& call) {
  const BinaryOp op = op_of(call);
  const BroadcastPlan plan = plan_of(call, call.in[0], call.in[1]);
  const std::int64_t a_step = plan.repeats(0) ? 0 : 1, b_step = plan.repeats(1) ? 0 : 1;
  with_native_type(call.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const T *a = call.in[0].as<T>(), *b = call.in[1].as<T>();
    call.pool->parallel_for(plan.count, kElementGrain / 4, [&](std::int64_t begin, std::int64_t end) {
      for_each_row(plan, begin, end, [&](std::int64_t at, const auto& offset, std::int64_t n) {
        const T *pa = a + offset[0], *pb = b + offset[1];
        if (is_comparison(op)) {
          compare_rows(op, pa, a_step == 0, pb, b_step == 0, call.out[0].mut<std::uint8_t>() + at, n);
        } else {
          T* y = call.out[0].mut<T>() + at;
          for (std::int64_t i = 0; i < n; ++i) y[i] = number_value(op, pa[i * a_step], pb[i * b_step]);
        }
      });
    });
  });
}

}  // namespace

void add_elementwise_binary_kernels(Registry& registry) {
  int count = 0;
  const BinaryName* const ops = binary_names(count);
  for (int i = 0; i < count; ++i) {
    Kernel kernel;
    kernel.op = ops[i].name;
    // Either input: one as large as the output is read where it is overwritten. Not where the output's
    // elements are smaller: equal bytes then say nothing of equal shapes.
    kernel.in_place = is_comparison(ops[i].op) ? 0 : 3;
    if (has_binary_f32(ops[i].op)) {
      kernel.name = kernel_name(kernel.op, "vector");
      kernel.why_not = kernel.op == "Mean" ? mean_why_not : vector_why_not;
      kernel.run = run_vector;
      registry.add(kernel);
    }
    if (kernel.op == "Mean") continue;
    kernel.name = kernel_name(kernel.op, "scalar");
    kernel.why_not = scalar_why_not;
    kernel.run = run_scalar;
    registry.add(kernel);
  }
}

}  // namespace pare
