#include <algorithm>
#include <cstring>

#include "engine/base/error.h"
#include "engine/ir/slice.h"
#include "engine/numeric/pack.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {

bool is_packed(DType type) { return bits(type) == 4 || bits(type) == 2; }

std::string moved_type_reason(const OpCall& call, int i) {
  const DType type = call.input(i).dtype;
  if (element_bytes(type) > 0) return {};
  return "input " + std::to_string(i) + " is " + name(type) + ", whose elements are no whole bytes";
}

void run_unpacked(const OpCall& call, void (*run)(const OpCall&)) {
  std::vector<TensorView> in(call.in.begin(), call.in.end()), out(call.out.begin(), call.out.end());
  std::vector<Tensor> memory;
  const auto as_bytes = [&](TensorView& view) {
    memory.push_back(Tensor::allocate(DType::kU8, view.dims));
    view.dtype = DType::kU8;
    view.data = memory.back().mut<std::uint8_t>();
  };
  for (TensorView& view : in) {
    if (!view.present() || !is_packed(view.dtype)) continue;
    const TensorView packed = view;
    as_bytes(view);
    unpack_codes(bits(packed.dtype), packed.data, view.mut<std::uint8_t>(), packed.size());
  }
  for (TensorView& view : out)
    if (view.present() && is_packed(view.dtype)) as_bytes(view);
  OpCall inner = call;
  inner.in = in;
  inner.out = out;
  run(inner);
  for (std::size_t i = 0; i < out.size(); ++i)
    if (call.out[i].present() && is_packed(call.out[i].dtype))
      pack_codes(bits(call.out[i].dtype), out[i].as<std::uint8_t>(), call.out[i].data, out[i].size());
}

namespace {

std::string any_type(const OpCall&) { return {}; }

void run_alias(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  if (x.data == y.data) return;
  if (x.dtype == DType::kString) {
    std::copy_n(x.as<std::string>(), x.size(), y.mut<std::string>());
  } else {
    std::memmove(y.data, x.data, static_cast<std::size_t>(byte_count(x.dtype, x.dims)));
  }
}

std::string dropout_alias_why_not(const OpCall& call) {
  if (call.has(2) && (call.in[2].data == nullptr || *call.in[2].as<std::uint8_t>() != 0))
    return "training mode is on, or not known beforehand";
  if (call.out.size() > 1 && call.out[1].present()) return "the mask is wanted";
  return {};
}

std::string dropout_mask_why_not(const OpCall& call) {
  if (call.has(2) && (call.in[2].data == nullptr || *call.in[2].as<std::uint8_t>() != 0))
    return "training mode is on, or not known beforehand";
  return {};
}

void run_dropout_mask(const OpCall& call) {
  run_alias(call);
  if (call.out.size() > 1 && call.out[1].present())
    std::memset(call.out[1].data, 1, static_cast<std::size_t>(call.out[1].size()));
}

// --- one strided copy

StridedCopy transpose_copy(const OpCall& call) {
  const Dims& dims = call.in[0].dims;
  std::vector<std::int64_t> perm = call.node->attr_ints("perm");
  const auto rank = static_cast<std::int64_t>(dims.size());
  if (perm.empty())
    for (std::int64_t i = rank; i-- > 0;) perm.push_back(i);
  StridedCopy copy;
  const Dims strides = row_major_strides(dims);
  for (std::int64_t axis : perm) {
    const auto at = static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
    copy.dims.push_back(dims[at]);
    copy.in_strides.push_back(strides[at]);
  }
  copy.out_strides = row_major_strides(copy.dims);
  return copy;
}

StridedCopy slice_copy(const OpCall& call) {
  const Dims& dims = call.in[0].dims;
  StridedCopy copy;
  copy.dims = dims;
  copy.in_strides = row_major_strides(dims);
  const std::vector<std::int64_t> starts = ints_of(call.in[1]), ends = ints_of(call.in[2]);
  std::vector<std::int64_t> axes, steps(starts.size(), 1);
  if (call.has(3)) axes = ints_of(call.in[3]);
  if (!call.has(3))
    for (std::size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  if (call.has(4)) steps = ints_of(call.in[4]);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const auto axis =
        static_cast<std::size_t>(axes[i] < 0 ? axes[i] + static_cast<std::int64_t>(dims.size()) : axes[i]);
    const SliceAxis slice = resolve_slice(starts[i], ends[i], steps[i], dims[axis]);
    copy.in_offset += slice.count > 0 ? slice.start * copy.in_strides[axis] : 0;
    copy.dims[axis] = slice.count;
    // A single element takes no step, and a step beyond the axis might overflow.
    copy.in_strides[axis] *= slice.count > 1 ? slice.step : 1;
  }
  copy.out_strides = row_major_strides(copy.dims);
  return copy;
}

StridedCopy expand_copy(const OpCall& call) {
  const Dims &in = call.in[0].dims, &out = call.out[0].dims;
  StridedCopy copy;
  copy.dims = out;
  copy.out_strides = row_major_strides(out);
  copy.in_strides.assign(out.size(), 0);
  const Dims strides = row_major_strides(in);
  const std::size_t missing = out.size() - in.size();
  for (std::size_t i = 0; i < in.size(); ++i) copy.in_strides[i + missing] = in[i] == 1 ? 0 : strides[i];
  return copy;
}

// A slice that is one run of the input's memory is a view of it.
std::string slice_view_why_not(const OpCall& call) {
  std::string reason = moved_type_reason(call, 0);
  if (!reason.empty()) return reason;
  for (int i = 1; i < 5; ++i)
    if (call.has(i) && call.in[static_cast<std::size_t>(i)].data == nullptr)
      return "the indices are not known beforehand";
  const StridedCopy copy = slice_copy(call);
  std::int64_t expected = 1;
  for (std::size_t k = copy.dims.size(); k-- > 0;) {
    if (copy.dims[k] == 1) continue;
    if (copy.in_strides[k] != expected) return "the elements do not lie one behind the other";
    expected *= copy.dims[k];
  }
  return {};
}

std::int64_t slice_view_offset(const OpCall& call) {
  return slice_copy(call).in_offset * element_bytes(call.in[0].dtype);
}

// Axis n repeated r times is two axes: r (stride 0) and n.
StridedCopy tile_copy(const OpCall& call) {
  const Dims &in = call.in[0].dims, &out = call.out[0].dims;
  const Dims in_strides = row_major_strides(in), out_strides = row_major_strides(out);
  StridedCopy copy;
  for (std::size_t i = 0; i < in.size(); ++i) {
    copy.dims.push_back(in[i] == 0 ? 0 : out[i] / in[i]);
    copy.in_strides.push_back(0);
    copy.out_strides.push_back(out_strides[i] * in[i]);
    copy.dims.push_back(in[i]);
    copy.in_strides.push_back(in_strides[i]);
    copy.out_strides.push_back(out_strides[i]);
  }
  return copy;
}

// Blocks of b x b become channels or come from them: six axes, in the order of the output.
StridedCopy blocks_copy(const OpCall& call) {
  const std::int64_t b = call.node->attr("blocksize", std::int64_t{1});
  const bool to_space = call.node->op == "DepthToSpace";
  const bool channel_last = call.node->attr("mode", "DCR") == "CRD";
  const Dims &in = call.in[0].dims, &out = call.out[0].dims;
  const std::int64_t n = out[0], h = to_space ? in[2] : out[2], w = to_space ? in[3] : out[3];
  const std::int64_t c = to_space ? out[1] : in[1];
  StridedCopy copy;
  // Axes: n, c, y (of the block grid), dy, x, dx.
  copy.dims = {n, c, h, b, w, b};
  const std::int64_t plane = h * w;
  Dims deep = {c * b * b * plane, plane, w, b * c * plane, 1, c * plane};  // channel = (dy * b + dx) * C + c
  if (to_space && channel_last) deep = {c * b * b * plane, b * b * plane, w, b * plane, 1, plane};
  const Dims wide = {c * plane * b * b, plane * b * b, b * w * b, w * b, b, 1};
  copy.in_strides = to_space ? deep : wide;
  copy.out_strides = to_space ? wide : deep;
  return copy;
}

std::string copy_why_not(const OpCall& call) { return moved_type_reason(call, 0); }

void run_copy(const OpCall& call) {
  StridedCopy copy;
  PARE_ASSERT(movement_copy(call, copy));
  strided_copy(copy, element_bytes(call.in[0].dtype), call.in[0].data, call.out[0].data, *call.pool);
}

std::string packed_why_not(const OpCall& call) {
  if (is_packed(call.input(0).dtype)) return {};
  return std::string("input 0 is ") + name(call.input(0).dtype) + ", not a packed type";
}

void run_packed_copy(const OpCall& call) { run_unpacked(call, run_copy); }

// --- Concat and Split

void run_concat(const OpCall& call) {
  const TensorView& y = call.out[0];
  const auto axis =
      static_cast<std::size_t>(axis_of(*call.node, "axis", 0, static_cast<std::int64_t>(y.dims.size())));
  const std::int64_t outer = product_of(y.dims, 0, axis), inner = product_of(y.dims, axis + 1, y.dims.size());
  std::int64_t done = 0;
  for (const TensorView& x : call.in) {
    const std::int64_t part = x.dims[axis] * inner;
    strided_copy({{outer, part}, {part, 1}, {y.dims[axis] * inner, 1}, 0, done}, element_bytes(y.dtype),
                 x.data, y.data, *call.pool);
    done += part;
  }
}

void run_split(const OpCall& call) {
  const TensorView& x = call.in[0];
  const auto axis =
      static_cast<std::size_t>(axis_of(*call.node, "axis", 0, static_cast<std::int64_t>(x.dims.size())));
  const std::int64_t outer = product_of(x.dims, 0, axis), inner = product_of(x.dims, axis + 1, x.dims.size());
  const std::vector<std::int64_t> sizes = split_sizes(call);
  std::int64_t done = 0;
  for (std::size_t i = 0; i < call.out.size(); ++i) {
    const TensorView& y = call.out[i];
    const std::int64_t part = sizes[i] * inner;
    if (y.present())
      strided_copy({{outer, part}, {x.dims[axis] * inner, 1}, {part, 1}, done, 0}, element_bytes(x.dtype),
                   x.data, y.data, *call.pool);
    done += part;
  }
}

// --- Pad with a constant: everything filled, then what is left of the input copied into its place

std::string pad_why_not(const OpCall& call) {
  const std::string mode = call.node->attr("mode", "constant");
  return mode == "constant" ? moved_type_reason(call, 0) : "mode " + mode;
}

void run_pad(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const int bytes = element_bytes(x.dtype);
  const Dims begin = pad_begins(call);
  StridedCopy copy{y.dims, row_major_strides(x.dims), row_major_strides(y.dims), 0, 0};
  for (std::size_t i = 0; i < y.dims.size(); ++i) {
    const std::int64_t first = std::max<std::int64_t>(0, begin[i]);  // in y
    const std::int64_t last = std::min(y.dims[i], x.dims[i] + begin[i]);
    copy.dims[i] = std::max<std::int64_t>(0, last - first);
    if (copy.dims[i] == 0) continue;
    copy.in_offset += (first - begin[i]) * copy.in_strides[i];
    copy.out_offset += first * copy.out_strides[i];
  }
  const std::byte zero[16] = {};
  const std::byte* value = call.has(2) && call.in[2].size() == 1 ? call.in[2].as<std::byte>() : zero;
  if (copy.dims != y.dims)
    call.pool->parallel_for(y.size(), kElementGrain, [&](std::int64_t from, std::int64_t to) {
      fill_elements(value, bytes, y.mut<std::byte>() + from * bytes, to - from);
    });
  if (product_of(copy.dims, 0, copy.dims.size()) > 0) strided_copy(copy, bytes, x.data, y.data, *call.pool);
}

void run_packed_concat(const OpCall& call) { run_unpacked(call, run_concat); }
void run_packed_split(const OpCall& call) { run_unpacked(call, run_split); }

}  // namespace

std::vector<std::int64_t> split_sizes(const OpCall& call) {
  if (call.has(1)) return ints_of(call.in[1]);
  const Dims& dims = call.in[0].dims;
  const std::int64_t whole =
      dims[static_cast<std::size_t>(axis_of(*call.node, "axis", 0, static_cast<std::int64_t>(dims.size())))];
  const auto parts = static_cast<std::int64_t>(call.out.size());
  const std::int64_t each = (whole + parts - 1) / parts;
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 0; i < parts; ++i)
    sizes.push_back(std::clamp<std::int64_t>(whole - each * i, 0, each));
  return sizes;
}

Dims pad_begins(const OpCall& call) {
  const std::vector<std::int64_t> pads = ints_of(call.in[1]);
  const auto rank = static_cast<std::int64_t>(call.in[0].dims.size());
  std::vector<std::int64_t> axes;
  if (call.has(3)) axes = ints_of(call.in[3]);
  Dims begin(call.in[0].dims.size(), 0);
  for (std::size_t i = 0; i < pads.size() / 2; ++i) {
    const std::int64_t axis = call.has(3) ? axes[i] : static_cast<std::int64_t>(i);
    begin[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)] = pads[i];
  }
  return begin;
}

std::int64_t padded_source(std::int64_t at, std::int64_t size, const std::string& mode) {
  if (at >= 0 && at < size) return at;
  if (mode == "constant" || size == 0) return -1;
  if (mode == "edge") return std::clamp<std::int64_t>(at, 0, size - 1);
  if (mode == "wrap") return ((at % size) + size) % size;
  if (size == 1) return 0;
  const std::int64_t period = 2 * (size - 1), within = ((at % period) + period) % period;
  return within < size ? within : period - within;
}

bool movement_copy(const OpCall& call, StridedCopy& out) {
  const std::string& op = call.node->op;
  if (op == "Transpose")
    out = transpose_copy(call);
  else if (op == "Slice")
    out = slice_copy(call);
  else if (op == "Expand")
    out = expand_copy(call);
  else if (op == "Tile")
    out = tile_copy(call);
  else if (op == "DepthToSpace" || op == "SpaceToDepth")
    out = blocks_copy(call);
  else
    return false;
  return true;
}

void add_movement_kernels(Registry& registry) {
  Kernel kernel;
  kernel.alias = 0;
  kernel.why_not = any_type;
  kernel.run = run_alias;
  for (const char* op : {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"}) {
    kernel.op = op;
    kernel.name = kernel_name(op, "alias");
    registry.add(kernel);
  }
  kernel.op = "Dropout";
  kernel.name = kernel_name("Dropout", "alias");
  kernel.why_not = dropout_alias_why_not;
  registry.add(kernel);
  kernel.alias = -1;
  kernel.in_place = 1;
  kernel.name = kernel_name("Dropout", "mask");
  kernel.why_not = dropout_mask_why_not;
  kernel.run = run_dropout_mask;
  registry.add(kernel);
  kernel.in_place = 0;

  Kernel view;
  view.op = "Slice";
  view.name = kernel_name("Slice", "view");
  view.why_not = slice_view_why_not;
  view.run = run_copy;
  view.alias = 0;
  view.alias_offset = slice_view_offset;
  registry.add(view);

  const auto add = [&](const char* op, void (*run)(const OpCall&), void (*run_packed)(const OpCall&)) {
    kernel.op = op;
    kernel.name = kernel_name(op, "copy");
    kernel.why_not = copy_why_not;
    kernel.run = run;
    registry.add(kernel);
    kernel.name = kernel_name(op, "packed");
    kernel.why_not = packed_why_not;
    kernel.run = run_packed;
    registry.add(kernel);
  };
  for (const char* op : {"Transpose", "Slice", "Expand", "Tile", "DepthToSpace", "SpaceToDepth"})
    add(op, run_copy, run_packed_copy);
  add("Concat", run_concat, run_packed_concat);
  add("Split", run_split, run_packed_split);
  kernel.op = "Pad";
  kernel.name = kernel_name("Pad", "copy");
  kernel.why_not = pad_why_not;
  kernel.run = run_pad;
  registry.add(kernel);
}

}  // namespace pare
