// NonZero, Compress, Unique: one plain kernel each.
#include "engine/ops/movement/select.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "engine/base/error.h"
#include "engine/numeric/convert.h"
#include "engine/ops/add_kernel.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

using Ints = std::vector<std::int64_t>;

// Calls f(pointer to the elements) with the C++ type: float16 and bfloat16 as float, in `room`.
template <typename F>
void with_elements(const TensorView& x, std::vector<float>& room, F&& f) {
  if (x.dtype == DType::kString) return f(x.as<std::string>());
  if (x.dtype == DType::kF16 || x.dtype == DType::kBF16) return f(all_floats(x, room));
  with_native_type(x.dtype, [&](auto zero) { f(x.as<decltype(zero)>()); });
}

std::string why_not(const OpCall& call) {
  const DType type = call.input(0).dtype;
  if (type == DType::kString || is_small_float(type) || with_native_type(type, [](auto) {})) return {};
  return std::string("input 0 is ") + name(type);
}

bool is_zero(const std::string& x) { return x.empty(); }
template <typename T>
bool is_zero(const T& x) {
  return x == T{0};
}

void run_non_zero(const OpCall& call) {
  const TensorView& x = call.in[0];
  const std::int64_t size = x.size();
  const auto rank = static_cast<std::int64_t>(x.dims.size());
  std::vector<float> room;
  Ints found;
  with_elements(x, room, [&](const auto* values) {
    for (std::int64_t i = 0; i < size; ++i)
      if (!is_zero(values[i])) found.push_back(i);
  });
  const auto count = static_cast<std::int64_t>(found.size());
  auto* y = call.allocate(0, {rank, count}).mut<std::int64_t>();
  for (std::int64_t axis = rank - 1; axis >= 0; --axis) {
    const std::int64_t width = x.dims[static_cast<std::size_t>(axis)];
    for (std::int64_t k = 0; k < count; ++k) {
      y[axis * count + k] = found[static_cast<std::size_t>(k)] % width;
      found[static_cast<std::size_t>(k)] /= width;
    }
  }
}

// x as [outer, size, inner]: slices along the axis, or elements when there is no such attribute.
struct Slices {
  std::int64_t outer = 1, size = 0, inner = 1;
  std::size_t axis = 0;
  bool flat = true;

  explicit Slices(const OpCall& call) {
    const Dims& dims = call.in[0].dims;
    flat = !call.node->has_attr("axis");
    if (flat) {
      size = call.in[0].size();
      return;
    }
    axis = static_cast<std::size_t>(axis_of(*call.node, "axis", 0, static_cast<std::int64_t>(dims.size())));
    outer = product_of(dims, 0, axis);
    size = dims[axis];
    inner = product_of(dims, axis + 1, dims.size());
  }
};

// Output 0 holds the given slices of input 0.
void write_slices(const OpCall& call, const Slices& s, const Ints& places) {
  const TensorView& x = call.in[0];
  const auto count = static_cast<std::int64_t>(places.size());
  Dims dims = x.dims;
  if (s.flat)
    dims = {count};
  else
    dims[s.axis] = count;
  const TensorView y = call.allocate(0, dims);
  const auto bytes = static_cast<std::size_t>(s.inner * element_bytes(x.dtype));
  for (std::int64_t o = 0; o < s.outer; ++o)
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t from = o * s.size + places[static_cast<std::size_t>(k)], to = o * count + k;
      if (x.dtype == DType::kString)
        std::copy_n(x.as<std::string>() + from * s.inner, s.inner, y.mut<std::string>() + to * s.inner);
      else if (bytes != 0)
        std::memcpy(y.mut<std::byte>() + static_cast<std::size_t>(to) * bytes,
                    x.as<std::byte>() + static_cast<std::size_t>(from) * bytes, bytes);
    }
}

std::string compress_why_not(const OpCall& call) {
  if (element_bytes(call.input(0).dtype) == 0 && call.input(0).dtype != DType::kString)
    return std::string("input 0 is ") + name(call.input(0).dtype);
  return type_reason(call, 1, {DType::kBool});
}

void run_compress(const OpCall& call) {
  const Slices slices(call);
  Ints places;
  for (std::int64_t i = 0; i < call.in[1].size(); ++i) {
    if (call.in[1].as<std::uint8_t>()[i] == 0) continue;
    if (i >= slices.size)
      fail(ErrorCode::kBadFile, "condition {} is true, and there are {} slices to choose from", i,
           slices.size);
    places.push_back(i);
  }
  write_slices(call, slices, places);
}

template <typename T>
int order(const T& a, const T& b) {
  if constexpr (std::is_floating_point_v<T>) {
    const bool nan_a = std::isnan(a), nan_b = std::isnan(b);
    if (nan_a || nan_b) return static_cast<int>(nan_a) - static_cast<int>(nan_b);
  }
  return a < b ? -1 : b < a ? 1 : 0;
}

void run_unique(const OpCall& call) {
  const Slices s(call);
  const bool sorted = call.node->attr("sorted", std::int64_t{1}) != 0;
  Ints by_value(static_cast<std::size_t>(s.size));
  std::iota(by_value.begin(), by_value.end(), std::int64_t{0});
  Ints first, inverse(static_cast<std::size_t>(s.size)), counts;
  std::vector<float> room;
  with_elements(call.in[0], room, [&](const auto* values) {
    const auto compare = [&](std::int64_t a, std::int64_t b) {
      for (std::int64_t o = 0; o < s.outer; ++o)
        for (std::int64_t i = 0; i < s.inner; ++i) {
          const int way =
              order(values[(o * s.size + a) * s.inner + i], values[(o * s.size + b) * s.inner + i]);
          if (way != 0) return way;
        }
      return 0;
    };
    std::stable_sort(by_value.begin(), by_value.end(),
                     [&](std::int64_t a, std::int64_t b) { return compare(a, b) < 0; });
    for (const std::int64_t place : by_value) {
      if (first.empty() || compare(first.back(), place) != 0) {
        first.push_back(place);
        counts.push_back(0);
      }
      ++counts.back();
      inverse[static_cast<std::size_t>(place)] = static_cast<std::int64_t>(first.size()) - 1;
    }
  });
  if (!sorted) {  // by first occurrence
    Ints ranked(first.size()), rank_of(first.size()), in_order;
    std::iota(ranked.begin(), ranked.end(), std::int64_t{0});
    std::sort(ranked.begin(), ranked.end(), [&](std::int64_t a, std::int64_t b) {
      return first[static_cast<std::size_t>(a)] < first[static_cast<std::size_t>(b)];
    });
    for (std::size_t k = 0; k < ranked.size(); ++k) {
      rank_of[static_cast<std::size_t>(ranked[k])] = static_cast<std::int64_t>(k);
      in_order.push_back(counts[static_cast<std::size_t>(ranked[k])]);
    }
    std::sort(first.begin(), first.end());
    counts = std::move(in_order);
    for (std::int64_t& place : inverse) place = rank_of[static_cast<std::size_t>(place)];
  }
  if (call.wants(0)) write_slices(call, s, first);
  const auto count = static_cast<std::int64_t>(first.size());
  if (call.wants(1)) std::copy(first.begin(), first.end(), call.allocate(1, {count}).mut<std::int64_t>());
  if (call.wants(2)) std::copy(inverse.begin(), inverse.end(), call.out[2].mut<std::int64_t>());
  if (call.wants(3)) std::copy(counts.begin(), counts.end(), call.allocate(3, {count}).mut<std::int64_t>());
}

}  // namespace

void add_select_kernels(Registry& registry) {
  Kernel allocates;
  allocates.allocates = true;
  add_kernel(registry, "NonZero", "reference", why_not, run_non_zero, allocates);
  add_kernel(registry, "Compress", "reference", compress_why_not, run_compress, allocates);
  add_kernel(registry, "Unique", "reference", why_not, run_unique, allocates);
}

}  // namespace pare
