// Gather, GatherElements, GatherND, ScatterElements, ScatterND, Trilu, Pad, Where: one plain kernel each.
#include <algorithm>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/grain.h"
#include "engine/ops/add_kernel.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/elementwise/elementwise_binary.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

std::string why_not(const OpCall& call) { return moved_type_reason(call, 0); }

std::string index_why_not(const OpCall& call) {
  std::string reason = moved_type_reason(call, 0);
  return reason.empty() ? type_reason(call, 1, {DType::kI64, DType::kI32}) : reason;
}

std::int64_t index_at(const TensorView& indices, std::int64_t i) {
  return indices.dtype == DType::kI64 ? indices.as<std::int64_t>()[i] : indices.as<std::int32_t>()[i];
}

std::int64_t checked_index(std::int64_t index, std::int64_t size) {
  if (index < -size || index >= size)
    throw make_error(ErrorCode::kBadFile, "index {} is outside an axis of {} elements", index, size);
  return index < 0 ? index + size : index;
}

void run_gather(const OpCall& call) {
  const TensorView &x = call.in[0], &indices = call.in[1];
  const auto axis =
      static_cast<std::size_t>(axis_of(*call.node, "axis", 0, static_cast<std::int64_t>(x.dims.size())));
  const std::int64_t outer = product_of(x.dims, 0, axis), size = x.dims[axis];
  const auto bytes = product_of(x.dims, axis + 1, x.dims.size()) * element_bytes(x.dtype);
  const std::int64_t count = indices.size();
  for (std::int64_t i = 0; i < count; ++i) checked_index(index_at(indices, i), size);
  const auto* from = x.as<std::byte>();
  auto* to = call.out[0].mut<std::byte>();
  call.pool->parallel_for(
      outer * count, grain_for(4 * kElementGrain, bytes), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t k = begin; k < end; ++k) {
          const std::int64_t index = index_at(indices, k % count);
          const std::int64_t row = k / count * size + (index < 0 ? index + size : index);
          std::memcpy(to + k * bytes, from + row * bytes, static_cast<std::size_t>(bytes));
        }
      });
}

void run_gather_packed(const OpCall& call) { run_unpacked(call, run_gather); }

std::string gather_packed_why_not(const OpCall& call) {
  if (!is_packed(call.input(0).dtype))
    return std::string("input 0 is ") + name(call.input(0).dtype) + ", not packed";
  return type_reason(call, 1, {DType::kI64, DType::kI32});
}

std::string packed_why_not(const OpCall& call) {
  if (is_packed(call.input(0).dtype)) return {};
  return std::string("input 0 is ") + name(call.input(0).dtype) + ", not packed";
}

// Offset in `data` of the element that stands at flat place `i` of `indices`, with axis `axis` replaced.
std::int64_t element_place(std::int64_t i, const TensorView& indices, const TensorView& data,
                           std::size_t axis) {
  const std::int64_t index = checked_index(index_at(indices, i), data.dims[axis]);
  std::int64_t place = 0, stride = 1, rest = i;
  for (std::size_t k = data.dims.size(); k-- > 0;) {
    const std::int64_t at = rest % indices.dims[k];
    rest /= indices.dims[k];
    const std::int64_t own = k == axis ? index : at;
    if (own >= data.dims[k])
      throw make_error(ErrorCode::kBadFile, "indices {} reach outside {}", to_string(indices.dims),
                       to_string(data.dims));
    place += own * stride;
    stride *= data.dims[k];
  }
  return place;
}

void run_gather_elements(const OpCall& call) {
  const TensorView &x = call.in[0], &indices = call.in[1];
  const auto axis =
      static_cast<std::size_t>(axis_of(*call.node, "axis", 0, static_cast<std::int64_t>(x.dims.size())));
  if (indices.dims.size() != x.dims.size())
    throw make_error(ErrorCode::kBadFile, "indices {} need the rank of {}", to_string(indices.dims),
                     to_string(x.dims));
  const auto size = static_cast<std::size_t>(element_bytes(x.dtype));
  const std::int64_t count = indices.size();
  for (std::int64_t i = 0; i < count; ++i)
    std::memcpy(call.out[0].mut<std::byte>() + static_cast<std::size_t>(i) * size,
                x.as<std::byte>() + static_cast<std::size_t>(element_place(i, indices, x, axis)) * size,
                size);
}

// Flat start of the block that index tuple `i` names; `batch` leading axes are shared.
std::int64_t tuple_place(const TensorView& indices, std::int64_t i, const Dims& data, std::size_t batch,
                         std::int64_t batch_index) {
  const std::int64_t width = indices.dims.back();
  std::int64_t place = batch_index;
  for (std::int64_t k = 0; k < width; ++k) {
    const std::int64_t size = data[batch + static_cast<std::size_t>(k)];
    place = place * size + checked_index(index_at(indices, i * width + k), size);
  }
  return place * product_of(data, batch + static_cast<std::size_t>(width), data.size());
}

void run_gather_nd(const OpCall& call) {
  const TensorView &x = call.in[0], &indices = call.in[1];
  const auto batch = static_cast<std::size_t>(call.node->attr("batch_dims", std::int64_t{0}));
  const auto width = static_cast<std::size_t>(indices.dims.back());
  const std::int64_t block = product_of(x.dims, batch + width, x.dims.size());
  const auto bytes = static_cast<std::size_t>(block * element_bytes(x.dtype));
  const std::int64_t tuples = product_of(indices.dims, 0, indices.dims.size() - 1);
  const std::int64_t batches = product_of(x.dims, 0, batch);
  const std::int64_t each = batches == 0 ? 0 : tuples / batches;
  for (std::int64_t i = 0; i < tuples; ++i) {
    const std::int64_t place = tuple_place(indices, i, x.dims, batch, each == 0 ? 0 : i / each);
    std::memcpy(call.out[0].mut<std::byte>() + static_cast<std::size_t>(i) * bytes,
                x.as<std::byte>() + place * element_bytes(x.dtype), bytes);
  }
}

// --- scatter

bool reduction_op(const Node& node, BinaryOp& op) {
  const std::string text = node.attr("reduction", "none");
  if (text == "add") return op = BinaryOp::kAdd, true;
  if (text == "mul") return op = BinaryOp::kMul, true;
  if (text == "min") return op = BinaryOp::kMin, true;
  if (text == "max") return op = BinaryOp::kMax, true;
  return false;
}

std::string scatter_why_not(const OpCall& call) {
  BinaryOp op = BinaryOp::kAdd;
  std::string reason = index_why_not(call);
  if (!reason.empty() || !reduction_op(*call.node, op)) return reason;
  const DType type = call.input(0).dtype;
  if (is_small_float(type) || with_native_type(type, [](auto) {})) return {};
  return std::string("no reduction of ") + name(type);
}

// y[at] = reduction(y[at], update[from]), or the update itself.
void put(const OpCall& call, std::int64_t at, std::int64_t from) {
  const TensorView &update = call.in[2], &y = call.out[0];
  BinaryOp op = BinaryOp::kAdd;
  if (!reduction_op(*call.node, op)) {
    const auto size = static_cast<std::size_t>(element_bytes(y.dtype));
    std::memcpy(y.mut<std::byte>() + static_cast<std::size_t>(at) * size,
                update.as<std::byte>() + static_cast<std::size_t>(from) * size, size);
  } else if (is_small_float(y.dtype)) {
    float room[2];
    const double old = static_cast<double>(*read_floats(y, at, 1, &room[0]));
    const double more = static_cast<double>(*read_floats(update, from, 1, &room[1]));
    float* to = floats_to_write(y, at, &room[0]);
    *to = static_cast<float>(binary_value(op, old, more));
    write_floats(y, at, 1, to);
  } else {
    with_native_type(y.dtype, [&](auto zero) {
      using T = decltype(zero);
      T& place = y.mut<T>()[at];
      if constexpr (std::is_integral_v<T>)
        place = integer_binary_value(op, place, update.as<T>()[from]);
      else
        place = static_cast<T>(
            binary_value(op, static_cast<double>(place), static_cast<double>(update.as<T>()[from])));
    });
  }
}

void copy_data(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  if (x.data != y.data) std::memcpy(y.data, x.data, static_cast<std::size_t>(byte_count(x.dtype, x.dims)));
}

void run_scatter_elements(const OpCall& call) {
  const TensorView &x = call.in[0], &indices = call.in[1];
  const auto axis =
      static_cast<std::size_t>(axis_of(*call.node, "axis", 0, static_cast<std::int64_t>(x.dims.size())));
  if (indices.dims.size() != x.dims.size() || call.in[2].dims != indices.dims)
    throw make_error(ErrorCode::kBadFile, "indices {}, updates {} and data {} do not fit",
                     to_string(indices.dims), to_string(call.in[2].dims), to_string(x.dims));
  copy_data(call);
  const std::int64_t count = indices.size();
  for (std::int64_t i = 0; i < count; ++i) put(call, element_place(i, indices, x, axis), i);
}

void run_scatter_nd(const OpCall& call) {
  const TensorView &x = call.in[0], &indices = call.in[1];
  const std::size_t rank = indices.dims.size();
  const auto width = rank == 0 ? std::size_t{0} : static_cast<std::size_t>(indices.dims.back());
  if (rank == 0 || width > x.dims.size())
    throw make_error(ErrorCode::kBadFile, "indices {} do not fit {}", to_string(indices.dims),
                     to_string(x.dims));
  const std::int64_t block = product_of(x.dims, width, x.dims.size());
  const std::int64_t tuples = product_of(indices.dims, 0, rank - 1);
  if (call.in[2].size() != tuples * block)
    throw make_error(ErrorCode::kBadFile, "updates {} do not fit indices {}", to_string(call.in[2].dims),
                     to_string(indices.dims));
  copy_data(call);
  for (std::int64_t i = 0; i < tuples; ++i) {
    const std::int64_t place = tuple_place(indices, i, x.dims, 0, 0);
    for (std::int64_t k = 0; k < block; ++k) put(call, place + k, i * block + k);
  }
}

// --- Trilu, Pad, Where

void run_trilu(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const std::size_t rank = x.dims.size();
  if (rank < 2)
    throw make_error(ErrorCode::kBadFile, "Trilu needs rank 2 or more, has {}", to_string(x.dims));
  const std::int64_t k = call.has(1) ? ints_of(call.in[1]).at(0) : 0;
  const bool upper = call.node->attr("upper", std::int64_t{1}) != 0;
  const std::int64_t rows = x.dims[rank - 2], columns = x.dims[rank - 1], count = x.size();
  const auto size = static_cast<std::size_t>(element_bytes(x.dtype));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = i / columns % rows, column = i % columns;
    // Written so that no extreme k overflows.
    const std::int64_t distance = column - row;
    const bool keep = upper ? distance >= k : distance <= k;
    auto* to = y.mut<std::byte>() + static_cast<std::size_t>(i) * size;
    if (keep)
      std::memmove(to, x.as<std::byte>() + static_cast<std::size_t>(i) * size, size);
    else
      std::memset(to, 0, size);
  }
}

std::string pad_why_not(const OpCall& call) {
  const std::string mode = call.node->attr("mode", "constant");
  if (mode != "constant" && mode != "edge" && mode != "reflect" && mode != "wrap") return "mode " + mode;
  return moved_type_reason(call, 0);
}

void run_pad(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const std::string mode = call.node->attr("mode", "constant");
  const Dims begin = pad_begins(call);
  const auto size = static_cast<std::size_t>(element_bytes(x.dtype));
  const std::byte zero[16] = {};
  const std::byte* value = call.has(2) && call.in[2].size() == 1 ? call.in[2].as<std::byte>() : zero;
  const Dims strides = row_major_strides(x.dims);
  call.pool->parallel_for(y.size(), kElementGrain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      std::int64_t rest = i, from = 0;
      bool inside = true;
      for (std::size_t k = y.dims.size(); k-- > 0;) {
        const std::int64_t source = padded_source(rest % y.dims[k] - begin[k], x.dims[k], mode);
        rest /= y.dims[k];
        inside = inside && source >= 0;
        from += source * strides[k];
      }
      std::memcpy(y.mut<std::byte>() + static_cast<std::size_t>(i) * size,
                  inside ? x.as<std::byte>() + static_cast<std::size_t>(from) * size : value, size);
    }
  });
}

std::string where_why_not(const OpCall& call) {
  std::string reason = type_reason(call, 0, {DType::kBool});
  return reason.empty() ? moved_type_reason(call, 1) : reason;
}

void run_where(const OpCall& call) {
  const TensorView& y = call.out[0];
  const Dims* dims[] = {&call.in[0].dims, &call.in[1].dims, &call.in[2].dims};
  const BroadcastPlan plan = plan_broadcast(y.dims, dims, 3);
  const std::int64_t steps[] = {plan.repeats(0) ? 0 : 1, plan.repeats(1) ? 0 : 1, plan.repeats(2) ? 0 : 1};
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    call.pool->parallel_for(plan.count, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      for_each_row(plan, begin, end, [&](std::int64_t at, const auto& offset, std::int64_t n) {
        const std::uint8_t* condition = call.in[0].as<std::uint8_t>() + offset[0];
        const T *yes = call.in[1].as<T>() + offset[1], *no = call.in[2].as<T>() + offset[2];
        T* to = y.mut<T>() + at;
        for (std::int64_t i = 0; i < n; ++i)
          to[i] = condition[i * steps[0]] != 0 ? yes[i * steps[1]] : no[i * steps[2]];
      });
    });
  };
  switch (element_bytes(y.dtype)) {
    case 1:
      return run(std::uint8_t{});
    case 2:
      return run(std::uint16_t{});
    case 4:
      return run(std::uint32_t{});
    default:
      return run(std::uint64_t{});
  }
}

std::string where_bytes_why_not(const OpCall& call) {
  return element_bytes(call.input(1).dtype) == 16 ? "complex128" : where_why_not(call);
}

}  // namespace

void add_gather_kernels(Registry& registry) {
  Kernel in_place;
  in_place.in_place = 1;
  add_kernel(registry, "Gather", "reference", index_why_not, run_gather);
  add_kernel(registry, "Gather", "packed", gather_packed_why_not, run_gather_packed);
  add_kernel(registry, "GatherElements", "reference", index_why_not, run_gather_elements);
  add_kernel(registry, "GatherND", "reference", index_why_not, run_gather_nd);
  add_kernel(registry, "ScatterElements", "reference", scatter_why_not, run_scatter_elements, in_place);
  add_kernel(registry, "ScatterND", "reference", scatter_why_not, run_scatter_nd, in_place);
  add_kernel(registry, "Trilu", "reference", why_not, run_trilu, in_place);
  add_kernel(registry, "Pad", "reference", pad_why_not, run_pad);
  add_kernel(registry, "Pad", "packed", packed_why_not,
             [](const OpCall& call) { run_unpacked(call, run_pad); });
  add_kernel(registry, "Where", "reference", where_bytes_why_not, run_where);
}

}  // namespace pare
