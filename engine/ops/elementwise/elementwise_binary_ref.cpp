// One output element after the other, its place in each input by division and remainder.
#include "engine/base/error.h"
#include "engine/numeric/convert.h"
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

bool is_number(DType type) {
  return is_small_float(type) || with_native_type(type, [](auto) {});
}

std::string why_not(const OpCall& call) {
  const BinaryOp op = op_of(call);
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    const DType type = call.in[i].dtype;
    if (!is_number(type)) return "input " + std::to_string(i) + " is " + name(type) + ", needs a number";
    if (type != call.in[0].dtype && op != BinaryOp::kPow) return "inputs of two types";
  }
  if (is_logical(op) && call.in[0].dtype != DType::kBool) return "needs bool";
  if (is_bitwise(op) && !is_integer(call.in[0].dtype)) return "needs integers";
  return {};
}

// Where output element i lies in an input that is broadcast to `out`.
std::int64_t source_index(std::int64_t i, const Dims& out, const Dims& in) {
  std::int64_t index = 0, stride = 1;
  for (std::size_t axis = out.size(); axis-- > 0;) {
    const std::int64_t at = i % out[axis];
    i /= out[axis];
    const std::size_t missing = out.size() - in.size();
    if (axis < missing) continue;
    const std::int64_t size = in[axis - missing];
    if (size != 1) index += at * stride;
    stride *= size;
  }
  return index;
}

double float_at(const TensorView& view, std::int64_t i) {
  if (is_small_float(view.dtype)) {
    float room = 0;
    return static_cast<double>(*read_floats(view, i, 1, &room));
  }
  double value = 0;
  with_native_type(view.dtype, [&](auto zero) { value = static_cast<double>(view.as<decltype(zero)>()[i]); });
  return value;
}

void run_float(const OpCall& call, BinaryOp op) {
  const TensorView& y = call.out[0];
  const std::int64_t count = y.size();
  const bool wide = call.in[0].dtype == DType::kF64;
  for (std::int64_t i = 0; i < count; ++i) {
    double value = float_at(call.in[0], source_index(i, y.dims, call.in[0].dims));
    for (std::size_t k = 1; k < call.in.size(); ++k) {
      value = binary_value(op, value, float_at(call.in[k], source_index(i, y.dims, call.in[k].dims)));
      if (!wide) value = static_cast<double>(static_cast<float>(value));
    }
    if (call.node->op == "Mean") value /= static_cast<double>(call.in.size());
    if (y.dtype == DType::kBool) {
      y.mut<std::uint8_t>()[i] = value != 0 ? 1 : 0;
    } else if (wide) {
      y.mut<double>()[i] = value;
    } else {
      float room = 0;
      float* to = floats_to_write(y, i, &room);
      *to = static_cast<float>(value);
      write_floats(y, i, 1, to);
    }
  }
}

void run_integer(const OpCall& call, BinaryOp op) {
  const TensorView& y = call.out[0];
  const std::int64_t count = y.size();
  with_native_type(call.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T>) {
      for (std::int64_t i = 0; i < count; ++i) {
        T value = call.in[0].as<T>()[source_index(i, y.dims, call.in[0].dims)];
        for (std::size_t k = 1; k < call.in.size(); ++k) {
          const TensorView& other = call.in[k];
          const std::int64_t at = source_index(i, y.dims, other.dims);
          if (other.dtype == call.in[0].dtype) {
            value = integer_binary_value(op, value, other.as<T>()[at]);
          } else if (is_integer(other.dtype)) {  // Pow with an exponent of another integer type
            const double exponent = float_at(other, at);
            const auto wide = integer_binary_value<std::int64_t>(op, static_cast<std::int64_t>(value),
                                                                 static_cast<std::int64_t>(exponent));
            value = static_cast<T>(wide);
          } else {
            const double power = binary_value(op, static_cast<double>(value), float_at(other, at));
            const TensorView from{DType::kF64, {}, const_cast<double*>(&power)};
            convert(from, {call.in[0].dtype, {}, &value});
          }
        }
        if (is_comparison(op) || y.dtype == DType::kBool) {
          y.mut<std::uint8_t>()[i] = value != 0 ? 1 : 0;
        } else {
          y.mut<T>()[i] = value;
        }
      }
    }
  });
}

void run(const OpCall& call) {
  const BinaryOp op = op_of(call);
  if (is_float(call.in[0].dtype)) return run_float(call, op);
  run_integer(call, op);
}

}  // namespace

void add_elementwise_binary_reference(Registry& registry) {
  int count = 0;
  const BinaryName* const ops = binary_names(count);
  for (int i = 0; i < count; ++i) {
    Kernel kernel;
    kernel.op = ops[i].name;
    kernel.name = kernel_name(kernel.op, "reference");
    kernel.why_not = why_not;
    kernel.run = run;
    registry.add(kernel);
  }
}

}  // namespace pare
