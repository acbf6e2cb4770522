#include "engine/ops/images/fold.h"

#include <algorithm>
#include <cstring>

#include "engine/base/error.h"
#include "engine/ir/window.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

// --- Col2Im

std::string col_why_not(const OpCall& call) {
  const DType type = call.in[0].dtype;
  if (is_small_float(type) || with_native_type(type, [](auto) {})) return {};
  return std::string("input 0 is ") + name(type) + ", needs a number";
}

// T: the type of the sums.
template <typename T>
void col2im(const OpCall& call, const T* x, T* y, bool logical) {
  const Dims &x_dims = call.in[0].dims, &y_dims = call.out[0].dims;
  const Window window = read_window(*call.node, ints_of(call.in[2]));
  const std::size_t axes = window.kernel.size();
  const std::int64_t block = product_of(window.kernel, 0, axes), blocks = x_dims[2],
                     plane = product_of(y_dims, 2, y_dims.size());
  Dims counts(axes);
  for (std::size_t a = 0; a < axes; ++a)
    counts[a] = window_output(window, static_cast<int>(a), y_dims[a + 2]);
  if (product_of(counts, 0, axes) != blocks)
    throw make_error(ErrorCode::kBadFile, "{} blocks do not make up {}", blocks, to_string(y_dims));
  call.pool->parallel_for(y_dims[0] * y_dims[1], 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t image = begin; image < end; ++image) {
      T* const out = y + image * plane;
      std::fill_n(out, plane, T{0});
      for (std::int64_t k = 0; k < block; ++k)
        for (std::int64_t b = 0; b < blocks; ++b) {
          std::int64_t rest_k = k, rest_b = b, place = 0, stride = 1;
          bool inside = true;
          for (std::size_t a = axes; a-- > 0;) {
            const std::int64_t at = rest_b % counts[a] * window.strides[a] - window.pads_begin[a] +
                                    rest_k % window.kernel[a] * window.dilations[a];
            rest_b /= counts[a];
            rest_k /= window.kernel[a];
            inside = inside && at >= 0 && at < y_dims[a + 2];
            place += at * stride;
            stride *= y_dims[a + 2];
          }
          if (!inside) continue;
          const T value = x[(image * block + k) * blocks + b];
          out[place] =
              logical ? static_cast<T>(out[place] != 0 || value != 0) : static_cast<T>(out[place] + value);
        }
    }
  });
}

void run_col(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  if (is_float(x.dtype)) {
    std::vector<double> out(static_cast<std::size_t>(y.size()));
    col2im(call, doubles_of(x).data(), out.data(), false);
    return write_doubles(y, out);
  }
  with_native_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;  // wraps by itself
      col2im(call, x.as<U>(), y.mut<U>(), x.dtype == DType::kBool);
    }
  });
}

// --- MaxUnpool

std::string unpool_why_not(const OpCall& call) {
  std::string reason = float_reason(call, {0});
  return reason.empty() ? type_reason(call, 1, {DType::kI64}) : reason;
}

void run_unpool(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const Window window = read_window(*call.node, {});
  Dims own = x.dims;  // what the attributes give
  for (int a = 0; a < window.axes(); ++a) {
    const auto i = static_cast<std::size_t>(a);
    own[i + 2] = (x.dims[i + 2] - 1) * window.strides[i] - window.pads_begin[i] - window.pads_end[i] +
                 window.kernel[i];
  }
  const auto size = static_cast<std::size_t>(element_bytes(x.dtype));
  std::memset(y.data, 0, static_cast<std::size_t>(y.size()) * size);
  const std::int64_t count = x.size(), room = element_count(own);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t index = call.in[1].as<std::int64_t>()[i], place = 0, stride = 1;
    if (index < 0 || index >= room)
      throw make_error(ErrorCode::kBadFile, "index {} is outside {}", index, to_string(own));
    for (std::size_t a = own.size(); a-- > 0;) {
      const std::int64_t at = index % own[a];
      index /= own[a];
      if (at >= y.dims[a])
        throw make_error(ErrorCode::kBadFile, "output_shape {} is smaller than {}", to_string(y.dims),
                         to_string(own));
      place += at * stride;
      stride *= y.dims[a];
    }
    std::memcpy(y.mut<std::byte>() + static_cast<std::size_t>(place) * size,
                x.as<std::byte>() + static_cast<std::size_t>(i) * size, size);
  }
}

// --- CenterCropPad

std::string moved_why_not(const OpCall& call) {
  if (is_packed(call.in[0].dtype)) return std::string("input 0 is ") + name(call.in[0].dtype) + ", packed";
  return moved_type_reason(call, 0);
}

void run_center(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const auto size = static_cast<std::size_t>(element_bytes(x.dtype));
  std::memset(y.data, 0, static_cast<std::size_t>(y.size()) * size);
  Dims common = y.dims;
  std::int64_t from = 0, to = 0;
  const Dims x_strides = row_major_strides(x.dims), y_strides = row_major_strides(y.dims);
  for (std::size_t a = 0; a < common.size(); ++a) {
    common[a] = std::min(x.dims[a], y.dims[a]);
    from += (x.dims[a] - common[a]) / 2 * x_strides[a];
    to += (y.dims[a] - common[a]) / 2 * y_strides[a];
  }
  const std::int64_t row = common.empty() ? 1 : common.back();
  const std::int64_t rows = row == 0 ? 0 : element_count(common) / row;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t rest = r, source = from, target = to;
    for (std::size_t a = common.size() - (common.empty() ? 0 : 1); a-- > 0;) {
      source += rest % common[a] * x_strides[a];
      target += rest % common[a] * y_strides[a];
      rest /= common[a];
    }
    std::memcpy(y.mut<std::byte>() + static_cast<std::size_t>(target) * size,
                x.as<std::byte>() + static_cast<std::size_t>(source) * size,
                static_cast<std::size_t>(row) * size);
  }
}

// --- TensorScatter

void run_tensor_scatter(const OpCall& call) {
  const TensorView &past = call.in[0], &update = call.in[1], &y = call.out[0];
  const auto rank = static_cast<std::int64_t>(past.dims.size());
  const std::int64_t axis = axis_of(*call.node, "axis", -2, rank);
  const bool circular = call.node->attr("mode", "linear") == "circular";
  bool fits = axis >= 1 && axis < rank && update.dims.size() == past.dims.size();
  for (std::int64_t a = 0; fits && a < rank; ++a) {
    const auto i = static_cast<std::size_t>(a);
    fits = a == axis ? update.dims[i] <= past.dims[i] : update.dims[i] == past.dims[i];
  }
  if (!fits || (call.has(2) && call.in[2].size() != past.dims[0]))
    throw make_error(ErrorCode::kBadFile, "an update {} on axis {} does not fit a cache {}",
                     to_string(update.dims), axis, to_string(past.dims));
  const auto at = static_cast<std::size_t>(axis);
  const std::int64_t outer = product_of(past.dims, 0, at), each = outer == 0 ? 1 : outer / past.dims[0],
                     length = past.dims[at], count = update.dims[at];
  const auto bytes =
      static_cast<std::size_t>(product_of(past.dims, at + 1, past.dims.size()) * element_bytes(past.dtype));
  if (y.data != past.data)
    std::memcpy(y.data, past.data, static_cast<std::size_t>(byte_count(past.dtype, past.dims)));
  std::vector<std::int64_t> starts(static_cast<std::size_t>(past.dims[0]), 0);
  if (call.has(2)) starts = ints_of(call.in[2]);
  for (const std::int64_t start : starts)
    if (start < 0 || (circular ? start >= length && length > 0 : start > length - count))
      throw make_error(ErrorCode::kBadFile, "{} elements written from {} on into a cache of {}", count, start,
                       length);
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t s = 0; s < count; ++s) {
      const std::int64_t place = (starts[static_cast<std::size_t>(o / each)] + s) % length;
      std::memcpy(y.mut<std::byte>() + static_cast<std::size_t>(o * length + place) * bytes,
                  update.as<std::byte>() + static_cast<std::size_t>(o * count + s) * bytes, bytes);
    }
}

}  // namespace

void add_fold_references(Registry& registry) {
  registry.add({"", "Col2Im", Backend::kCpu, "Col2Im/cpu:reference", col_why_not, nullptr, run_col});
  registry.add(
      {"", "MaxUnpool", Backend::kCpu, "MaxUnpool/cpu:reference", unpool_why_not, nullptr, run_unpool});
  registry.add({"", "CenterCropPad", Backend::kCpu, "CenterCropPad/cpu:reference", moved_why_not, nullptr,
                run_center});
  Kernel scatter = {"",      "TensorScatter",   Backend::kCpu, "TensorScatter/cpu:reference", moved_why_not,
                    nullptr, run_tensor_scatter};
  scatter.in_place = 1;
  registry.add(scatter);
  scatter.in_place = 0;
  scatter.name = "TensorScatter/cpu:packed";
  scatter.why_not = [](const OpCall& call) {
    return is_packed(call.in[0].dtype) ? std::string() : std::string("input 0 is not packed");
  };
  scatter.run = [](const OpCall& call) { run_unpacked(call, run_tensor_scatter); };
  registry.add(scatter);
}

}  // namespace pare
