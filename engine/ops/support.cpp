#include "engine/ops/support.h"

#include <mutex>
#include <set>

#include "engine/base/error.h"
#include "engine/numeric/convert.h"

namespace pare {

std::string type_reason(const TensorView& view, const std::string& what, std::initializer_list<DType> types) {
  std::string list;
  for (const DType type : types) {
    if (view.dtype == type) return {};
    list += (list.empty() ? "" : " or ") + std::string(name(type));
  }
  return what + " is " + (view.present() ? name(view.dtype) : "absent") + ", needs " + list;
}

std::string type_reason(const OpCall& call, int i, std::initializer_list<DType> types) {
  return type_reason(call.input(i), "input " + std::to_string(i), types);
}

std::string_view kernel_name(std::string_view op, std::string_view variant) {
  static std::mutex mutex;
  static std::set<std::string> names;
  const std::lock_guard lock(mutex);
  return *names.insert(fmt::format("{}/cpu:{}", op, variant)).first;
}

int axis_of(const Node& node, const char* key, std::int64_t otherwise, std::int64_t rank) {
  const std::int64_t axis = node.attr(key, otherwise);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::int64_t product_of(const Dims& dims, std::size_t first, std::size_t last) {
  std::int64_t product = 1;
  for (std::size_t i = first; i < last; ++i) product *= dims[i];
  return product;
}

Dims row_major_strides(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (std::size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

std::vector<std::int64_t> ints_of(const TensorView& view) {
  return Tensor::share(view.dtype, view.dims, view.data, nullptr).to_ints();
}

int element_bytes(DType type) { return bits(type) % 8 == 0 ? bits(type) / 8 : 0; }

const float* read_floats(const TensorView& view, std::int64_t begin, std::int64_t n, float* room) {
  if (view.dtype == DType::kF32) return view.as<float>() + begin;
  decode(view.dtype, view.as<std::uint16_t>() + begin, room, n);
  return room;
}

const float* all_floats(const TensorView& view, std::vector<float>& room) {
  if (view.dtype != DType::kF32) room.resize(static_cast<std::size_t>(view.size()));
  return read_floats(view, 0, view.size(), room.data());
}

float* floats_to_write(const TensorView& view, std::int64_t begin, float* room) {
  return view.dtype == DType::kF32 ? view.mut<float>() + begin : room;
}

void write_floats(const TensorView& view, std::int64_t begin, std::int64_t n, const float* room) {
  if (view.dtype != DType::kF32) encode(view.dtype, room, view.mut<std::uint16_t>() + begin, n);
}

std::vector<double> doubles_of(const TensorView& view) {
  std::vector<double> values(static_cast<std::size_t>(view.size()));
  convert(view, {DType::kF64, view.dims, values.data()});
  return values;
}

void write_doubles(const TensorView& view, const std::vector<double>& values) {
  convert({DType::kF64, view.dims, const_cast<double*>(values.data())}, view);
}

std::string float_reason(const OpCall& call, std::initializer_list<int> inputs) {
  for (const int i : inputs) {
    if (!call.has(i)) continue;
    std::string reason = type_reason(call, i, {DType::kF32, DType::kF16, DType::kBF16, DType::kF64});
    if (!reason.empty()) return reason;
  }
  return {};
}

}  // namespace pare
