// The formulas as they stand, one element after the other.
#include <cmath>

#include "engine/base/error.h"
#include "engine/numeric/convert.h"
#include "engine/ops/elementwise/elementwise_unary.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

std::string float_why_not(const OpCall& call) {
  return type_reason(call, 0, {DType::kF32, DType::kF16, DType::kBF16, DType::kF64});
}

void run_float(const OpCall& call) {
  UnaryParams params;
  PARE_ASSERT(unary_params(*call.node, params));
  const TensorView &x = call.in[0], &y = call.out[0];
  const std::int64_t count = x.size();
  for (std::int64_t i = 0; i < count; ++i) {
    if (x.dtype == DType::kF64) {
      y.mut<double>()[i] = unary_value(params, x.as<double>()[i]);
      continue;
    }
    float room = 0;
    const float value = *read_floats(x, i, 1, &room);
    float* to = floats_to_write(y, i, &room);
    *to = static_cast<float>(unary_value(params, static_cast<double>(value)));
    write_floats(y, i, 1, to);
  }
}

std::string integer_why_not(const OpCall& call) {
  if (element_bytes(call.input(0).dtype) == 0 || !is_integer(call.input(0).dtype))
    return std::string("input 0 is ") + name(call.input(0).dtype) + ", needs an integer of 8 bits or more";
  return {};
}

// In 64 bits, then cut to the type: the least value wraps.
std::int64_t integer_value(std::string_view op, std::int64_t x, bool is_signed) {
  const auto bits_of = static_cast<std::uint64_t>(x);
  if (op == "BitwiseNot") return ~x;
  if (op == "Neg") return static_cast<std::int64_t>(std::uint64_t{0} - bits_of);
  if (op == "Sign") return is_signed && x < 0 ? -1 : x != 0 ? 1 : 0;
  if (!is_signed) return x;  // Abs, Relu
  if (op == "Relu") return x < 0 ? 0 : x;
  return x < 0 ? static_cast<std::int64_t>(std::uint64_t{0} - bits_of) : x;
}

void run_integer(const OpCall& call) {
  const std::int64_t count = call.in[0].size();
  with_native_type(call.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T>)
      for (std::int64_t i = 0; i < count; ++i)
        call.out[0].mut<T>()[i] = static_cast<T>(integer_value(
            call.node->op, static_cast<std::int64_t>(call.in[0].as<T>()[i]), std::is_signed_v<T>));
  });
}

// Shrink of integers: the formula in double, cut to the type, which wraps.
void run_shrink(const OpCall& call) {
  UnaryParams params;
  PARE_ASSERT(unary_params(*call.node, params));
  std::vector<double> values = doubles_of(call.in[0]);
  for (double& v : values) v = unary_value(params, v);
  write_doubles(call.out[0], values);
}

std::string bool_why_not(const OpCall& call) { return type_reason(call, 0, {DType::kBool}); }

void run_not(const OpCall& call) {
  const std::int64_t count = call.in[0].size();
  for (std::int64_t i = 0; i < count; ++i)
    call.out[0].mut<std::uint8_t>()[i] = call.in[0].as<std::uint8_t>()[i] == 0 ? 1 : 0;
}

bool is_byte_float(DType type) {
  return type == DType::kE4M3FN || type == DType::kE4M3FNUZ || type == DType::kE5M2 ||
         type == DType::kE5M2FNUZ;
}

std::string class_why_not(const OpCall& call) {
  return is_byte_float(call.input(0).dtype) ? std::string() : float_why_not(call);
}

void run_class(const OpCall& call) {
  const TensorView& x = call.in[0];
  const bool is_nan = call.node->op == "IsNaN";
  const bool positive = call.node->attr("detect_positive", std::int64_t{1}) != 0;
  const bool negative = call.node->attr("detect_negative", std::int64_t{1}) != 0;
  const std::int64_t count = x.size();
  for (std::int64_t i = 0; i < count; ++i) {
    float room = 0;
    if (is_byte_float(x.dtype)) decode(x.dtype, x.as<std::uint8_t>() + i, &room, 1);
    const double value = x.dtype == DType::kF64   ? x.as<double>()[i]
                         : is_byte_float(x.dtype) ? static_cast<double>(room)
                                                  : static_cast<double>(*read_floats(x, i, 1, &room));
    const bool inf = std::isinf(value) && (value > 0 ? positive : negative);
    call.out[0].mut<std::uint8_t>()[i] = (is_nan ? std::isnan(value) : inf) ? 1 : 0;
  }
}

}  // namespace

void add_elementwise_unary_reference(Registry& registry) {
  int count = 0;
  const UnaryName* const ops = unary_names(count);
  Kernel kernel;
  kernel.in_place = 1;
  for (int i = 0; i < count; ++i) {
    kernel.op = ops[i].name;
    kernel.name = kernel_name(kernel.op, "reference");
    kernel.why_not = float_why_not;
    kernel.run = run_float;
    registry.add(kernel);
  }
  for (const char* op : {"Abs", "Neg", "Sign", "Relu", "BitwiseNot"}) {
    kernel.op = op;
    kernel.name = kernel_name(op, "integer_reference");
    kernel.why_not = integer_why_not;
    kernel.run = run_integer;
    registry.add(kernel);
  }
  kernel.op = "Shrink";
  kernel.name = kernel_name("Shrink", "integer_reference");
  kernel.run = run_shrink;
  registry.add(kernel);
  kernel.op = "Not";
  kernel.name = kernel_name("Not", "reference");
  kernel.why_not = bool_why_not;
  kernel.run = run_not;
  registry.add(kernel);
  kernel.in_place = 0;  // bool is smaller than what it is made of
  for (const char* op : {"IsNaN", "IsInf"}) {
    kernel.op = op;
    kernel.name = kernel_name(op, "reference");
    kernel.why_not = class_why_not;
    kernel.run = run_class;
    registry.add(kernel);
  }
}

}  // namespace pare
