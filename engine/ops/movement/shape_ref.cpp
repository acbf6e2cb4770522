// Shape, Size, ConstantOfShape, Range, Cast, CastLike, EyeLike, OneHot: values made of sizes and numbers.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/error.h"
#include "engine/numeric/convert.h"
#include "engine/ops/add_kernel.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

std::string anything(const OpCall&) { return {}; }

void run_shape(const OpCall& call) {
  const Dims& dims = call.in[0].dims;
  const auto rank = static_cast<std::int64_t>(dims.size());
  std::int64_t start = call.node->attr("start", std::int64_t{0});
  start = std::clamp<std::int64_t>(start < 0 ? start + rank : start, 0, rank);
  std::copy_n(dims.begin() + start, call.out[0].size(), call.out[0].mut<std::int64_t>());
}

void run_size(const OpCall& call) { *call.out[0].mut<std::int64_t>() = call.in[0].size(); }

std::string filled_why_not(const OpCall& call) {
  if (element_bytes(call.out[0].dtype) > 0) return {};
  return std::string("fills no ") + name(call.out[0].dtype);
}

void run_filled(const OpCall& call) {
  const float zero = 0;
  const Tensor* value = call.node->attr_tensor("value");
  fill_elements(value != nullptr ? value->data() : &zero, element_bytes(call.out[0].dtype), call.out[0].data,
                call.out[0].size());
}

std::string range_why_not(const OpCall& call) {
  return type_reason(
      call, 0, {DType::kI64, DType::kI32, DType::kI16, DType::kF32, DType::kF64, DType::kF16, DType::kBF16});
}

void run_range(const OpCall& call) {
  const TensorView& y = call.out[0];
  if (is_small_float(y.dtype)) {  // start + i * delta in float32, rounded once
    float rooms[3];
    const float start = *read_floats(call.in[0], 0, 1, &rooms[0]),
                delta = *read_floats(call.in[2], 0, 1, &rooms[2]);
    std::vector<float> out(static_cast<std::size_t>(y.size()));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = start + static_cast<float>(i) * delta;
    if (y.dtype == DType::kF32) std::copy(out.begin(), out.end(), y.mut<float>());
    return write_floats(y, 0, y.size(), out.data());
  }
  with_native_type(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T start = *call.in[0].as<T>(), delta = *call.in[2].as<T>();
    const std::int64_t count = y.size();
    for (std::int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_integral_v<T>)  // unsigned, so that nothing overflows
        y.mut<T>()[i] = static_cast<T>(static_cast<std::uint64_t>(start) +
                                       static_cast<std::uint64_t>(i) * static_cast<std::uint64_t>(delta));
      else
        y.mut<T>()[i] = start + static_cast<T>(i) * delta;
    }
  });
}

std::string cast_why_not(const OpCall& call) {
  for (const TensorView* view : {&call.in[0], &call.out[0]}) {
    const DType type = view->dtype;
    if (type == DType::kString || type == DType::kComplex64 || type == DType::kComplex128)
      return std::string("no cast of ") + name(type);
  }
  return {};
}

void run_cast(const OpCall& call) {
  CastOptions options;
  options.saturate = call.node->attr("saturate", std::int64_t{1}) != 0;
  const std::string round = call.node->attr("round_mode", "up");
  options.round = round == "down"      ? E8m0Round::kDown
                  : round == "nearest" ? E8m0Round::kNearest
                                       : E8m0Round::kUp;
  const TensorView &x = call.in[0], &y = call.out[0];
  const int in_bits = bits(x.dtype), out_bits = bits(y.dtype);
  // Pieces start at whole bytes: the grain is a multiple of 8.
  call.pool->parallel_for(x.size(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    const Dims piece = {end - begin};
    convert({x.dtype, piece, x.mut<std::byte>() + begin * in_bits / 8},
            {y.dtype, piece, y.mut<std::byte>() + begin * out_bits / 8}, options);
  });
}

std::string bit_cast_why_not(const OpCall& call) {
  return call.in[0].dtype == DType::kString ? "no bits of strings" : std::string();
}

void run_bit_cast(const OpCall& call) {
  if (call.in[0].data != call.out[0].data)
    std::memcpy(call.out[0].data, call.in[0].data,
                static_cast<std::size_t>(byte_count(call.out[0].dtype, call.out[0].dims)));
}

std::string eye_why_not(const OpCall& call) {
  return element_bytes(call.out[0].dtype) > 0 && with_native_type(call.out[0].dtype, [](auto) {})
             ? std::string()
             : std::string("makes no ") + name(call.out[0].dtype);
}

void run_eye(const OpCall& call) {
  const TensorView& y = call.out[0];
  const std::int64_t k = call.node->attr("k", std::int64_t{0}), columns = y.dims[1], count = y.size();
  with_native_type(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < count; ++i) y.mut<T>()[i] = i % columns - i / columns == k ? T{1} : T{0};
  });
}

std::string one_hot_why_not(const OpCall& call) {
  const DType type = call.in[0].dtype;
  if (type == DType::kBool || (!is_small_float(type) && !with_native_type(type, [](auto) {})))
    return std::string("input 0 is ") + name(type) + ", needs a number";
  return moved_type_reason(call, 2);
}

// Indices outside [-depth, depth) leave their place all off.
void run_one_hot(const OpCall& call) {
  const TensorView &indices = call.in[0], &values = call.in[2], &y = call.out[0];
  const auto rank = static_cast<std::int64_t>(y.dims.size());
  const auto axis = static_cast<std::size_t>(axis_of(*call.node, "axis", -1, rank));
  const std::int64_t depth = y.dims[axis], inner = product_of(y.dims, axis + 1, y.dims.size());
  const auto size = static_cast<std::size_t>(element_bytes(values.dtype));
  const std::int64_t count = y.size();
  const std::vector<double> places = doubles_of(indices);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = i / inner % depth, source = i / inner / depth * inner + i % inner;
    double index = places[static_cast<std::size_t>(source)];
    if (index < 0) index += static_cast<double>(depth);
    const std::size_t on = index == static_cast<double>(at) ? 1 : 0;
    std::memcpy(y.mut<std::byte>() + static_cast<std::size_t>(i) * size, values.as<std::byte>() + on * size,
                size);
  }
}

}  // namespace

void add_shape_kernels(Registry& registry) {
  Kernel in_place;
  in_place.in_place = 1;
  add_kernel(registry, "Shape", "reference", anything, run_shape);
  add_kernel(registry, "Size", "reference", anything, run_size);
  add_kernel(registry, "ConstantOfShape", "reference", filled_why_not, run_filled);
  add_kernel(registry, "Range", "reference", range_why_not, run_range);
  add_kernel(registry, "Cast", "reference", cast_why_not, run_cast);
  add_kernel(registry, "CastLike", "reference", cast_why_not, run_cast);
  add_kernel(registry, "BitCast", "reference", bit_cast_why_not, run_bit_cast, in_place);
  add_kernel(registry, "EyeLike", "reference", eye_why_not, run_eye);
  add_kernel(registry, "OneHot", "reference", one_hot_why_not, run_one_hot);
}

}  // namespace pare
