#include "engine/ir/infer_rules.h"

#include <algorithm>

#include "engine/base/error.h"

namespace pare {
namespace {

Dim broadcast_dim(InferContext& ctx, const Dim& a, const Dim& b, const Shape& sa, const Shape& sb) {
  if (a.known() && a.value == 1) return b;
  if (b.known() && b.value == 1) return a;
  if (a.known() && b.known() && a.value != b.value)
    ctx.bad("shapes " + to_string(sa) + " and " + to_string(sb) + " do not broadcast");
  if (a.known()) return a;
  if (b.known()) return b;
  return a.same(b) ? a : Dim{};
}

}  // namespace

Shape broadcast(InferContext& ctx, const Shape& a, const Shape& b) {
  if (!a.ranked || !b.ranked) return {};
  const std::size_t rank = std::max(a.dims.size(), b.dims.size());
  std::vector<Dim> dims(rank);
  const auto at = [rank](const Shape& s, std::size_t i) {
    const std::size_t missing = rank - s.dims.size();
    return i < missing ? Dim::of(1) : s.dims[i - missing];
  };
  for (std::size_t i = 0; i < rank; ++i) dims[i] = broadcast_dim(ctx, at(a, i), at(b, i), a, b);
  return Shape(std::move(dims));
}

Shape broadcast_inputs(InferContext& ctx, int first, int last) {
  Shape shape{std::vector<Dim>{}};
  for (int i = first; i < last; ++i)
    if (ctx.has_input(i)) shape = broadcast(ctx, shape, ctx.in_shape(i));
  return shape;
}

int checked_axis(InferContext& ctx, std::int64_t axis, int rank) {
  if (axis < -rank || axis >= rank)
    ctx.bad(fmt::format("axis {} is outside a tensor of rank {}", axis, rank));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<int> checked_axes(InferContext& ctx, const std::vector<std::int64_t>& axes, int rank) {
  std::vector<int> out;
  for (const std::int64_t axis : axes) out.push_back(checked_axis(ctx, axis, rank));
  std::sort(out.begin(), out.end());
  if (std::adjacent_find(out.begin(), out.end()) != out.end()) ctx.bad("an axis is named twice");
  return out;
}

bool known_ints(InferContext& ctx, int i, std::vector<std::int64_t>& out) {
  std::vector<SymInt> elements;
  if (!ctx.in_ints(i, elements)) return false;
  out.clear();
  for (const SymInt& element : elements) {
    if (!element.known) return false;
    out.push_back(element.value);
  }
  return true;
}

bool known_int(InferContext& ctx, int i, std::int64_t& out) {
  std::vector<std::int64_t> all;
  if (!known_ints(ctx, i, all)) return false;
  if (all.size() != 1) ctx.bad(fmt::format("input {} must hold one number, holds {}", i, all.size()));
  out = all[0];
  return true;
}

void need_one_or(InferContext& ctx, int i, std::initializer_list<Dim> also) {
  if (!ctx.has_input(i) || !ctx.in_shape(i).concrete()) return;
  const std::int64_t size = element_count(ctx.in_shape(i).sizes());
  if (size == 1) return;
  std::string wanted = "1";
  for (const Dim& dim : also) {
    if (!dim.known() || dim.value == size) return;
    wanted += fmt::format(" or {}", dim.value);
  }
  ctx.bad(fmt::format("input {} has {} elements, needs {}", i, size, wanted));
}

void need_bias(InferContext& ctx, int i, const Dim& m) {
  if (!ctx.has_input(i)) return;
  need_rank(ctx, i, 1);
  if (ctx.in_shape(i).ranked) unify(ctx, m, ctx.in_shape(i).dims[0], "output channels of weight and bias");
}

Shape sizes_input(InferContext& ctx, int i) {
  std::vector<SymInt> sizes;
  if (!ctx.in_ints(i, sizes)) return {};
  std::vector<Dim> dims;
  for (const SymInt& size : sizes) {
    if (size.known && size.value < 0) ctx.bad(fmt::format("a size is {}", size.value));
    dims.push_back(size.dim());
  }
  return Shape(std::move(dims));
}

void same_as_input(InferContext& ctx, int i) { ctx.set_out(0, ctx.in_dtype(i), ctx.in_shape(i)); }

DType dtype_attr(InferContext& ctx, const char* key, DType otherwise) {
  const std::int64_t code = ctx.node().attr(key, std::int64_t{0});
  if (code == 0) return otherwise;
  if (code < 0 || code >= kDTypeCount)
    ctx.bad(fmt::format("attribute {} names no element type: {}", key, code));
  return static_cast<DType>(code);
}

DType common_dtype(InferContext& ctx, int first, int last) {
  DType type = DType::kUndefined;
  for (int i = first; i < last; ++i) {
    if (!ctx.has_input(i)) continue;
    const DType other = ctx.in_dtype(i);
    if (other == DType::kUndefined) continue;
    if (type != DType::kUndefined && type != other)
      ctx.bad(fmt::format("inputs of types {} and {} where one type is needed", name(type), name(other)));
    type = other;
  }
  return type;
}

void need_rank(InferContext& ctx, int i, int rank) {
  const Shape& shape = ctx.in_shape(i);
  if (shape.ranked && shape.rank() != rank)
    ctx.bad(fmt::format("input {} has shape {}, needs rank {}", i, to_string(shape), rank));
}

void need_rank_at_least(InferContext& ctx, int i, int rank) {
  const Shape& shape = ctx.in_shape(i);
  if (shape.ranked && shape.rank() < rank)
    ctx.bad(fmt::format("input {} has shape {}, needs rank {} or more", i, to_string(shape), rank));
}

Dim unify(InferContext& ctx, const Dim& a, const Dim& b, const char* what) {
  if (a.known() && b.known() && a.value != b.value)
    ctx.bad(fmt::format("{}: {} against {}", what, a.value, b.value));
  if (a.known()) return a;
  if (b.known()) return b;
  return a.symbol.empty() ? b : a;
}

Dim product(const Dim& a, const Dim& b) {
  if (a.known() && a.value == 1) return b;
  if (b.known() && b.value == 1) return a;
  if ((a.known() && a.value == 0) || (b.known() && b.value == 0)) return Dim::of(0);
  std::int64_t value = 0;
  if (!a.known() || !b.known() || __builtin_mul_overflow(a.value, b.value, &value)) return {};
  return Dim::of(value);
}

Dim window_size(InferContext& ctx, const Window& window, int axis, const Dim& in) {
  const auto i = static_cast<std::size_t>(axis);
  if (in.known()) {
    const std::int64_t out = window_output(window, axis, in.value);
    if (out < 1 && in.value > 0)
      ctx.bad(fmt::format("a window of extent {} does not fit a size of {} with pads {} and {}",
                          window.extent(axis), in.value, window.pads_begin[i], window.pads_end[i]));
    return Dim::of(std::max<std::int64_t>(out, 0));
  }
  if (window.strides[i] != 1) return {};
  const bool same = window.auto_pad == AutoPad::kSameUpper || window.auto_pad == AutoPad::kSameLower ||
                    window.pads_begin[i] + window.pads_end[i] == window.extent(axis) - 1;
  return same ? in : Dim{};
}

Shape matmul_shape(InferContext& ctx, const Shape& a, const Shape& b) {
  if (!a.ranked || !b.ranked) return {};
  if (a.rank() == 0 || b.rank() == 0) ctx.bad("a factor is a scalar");
  std::vector<Dim> left = a.dims, right = b.dims;
  if (a.rank() == 1) left.insert(left.begin(), Dim::of(1));
  if (b.rank() == 1) right.push_back(Dim::of(1));
  const Dim& inner_a = left.back();
  const Dim& inner_b = right[right.size() - 2];
  if (inner_a.known() && inner_b.known() && inner_a.value != inner_b.value)
    ctx.bad("inner sizes of " + to_string(a) + " and " + to_string(b) + " differ");
  const Dim rows = left[left.size() - 2];
  const Dim columns = right.back();
  left.resize(left.size() - 2);
  right.resize(right.size() - 2);
  Shape out = broadcast(ctx, Shape(std::move(left)), Shape(std::move(right)));
  if (a.rank() != 1) out.dims.push_back(rows);
  if (b.rank() != 1) out.dims.push_back(columns);
  return out;
}

Shape conv_shape(InferContext& ctx, const Shape& data, const Shape& weight) {
  const int rank = data.ranked ? data.rank() : weight.rank();
  if (rank < 0) return {};
  if (rank < 3) ctx.bad("needs [n, c, spatial...], has " + to_string(data));
  if (data.ranked && weight.ranked && data.rank() != weight.rank())
    ctx.bad("data " + to_string(data) + " and weight " + to_string(weight) + " differ in rank");
  const std::int64_t group = ctx.node().attr("group", std::int64_t{1});
  if (group < 1) ctx.bad(fmt::format("attribute group is {}", group));
  Shape out(std::vector<Dim>(static_cast<std::size_t>(rank)));
  if (data.ranked) out.dims[0] = data.dims[0];
  if (weight.ranked) {
    out.dims[1] = weight.dims[0];
    if (out.dims[1].known() && out.dims[1].value % group != 0)
      ctx.bad(fmt::format("{} output channels are no multiple of {} groups", out.dims[1].value, group));
  }
  if (data.ranked && weight.ranked && data.dims[1].known() && weight.dims[1].known() &&
      (data.dims[1].value % group != 0 || data.dims[1].value / group != weight.dims[1].value))
    ctx.bad("data " + to_string(data) + " and weight " + to_string(weight) +
            fmt::format(" do not fit in {} groups", group));
  std::vector<std::int64_t> kernel = ctx.node().attr_ints("kernel_shape");
  if (weight.ranked) {
    const Shape spatial(std::vector<Dim>(weight.dims.begin() + 2, weight.dims.end()));
    if (spatial.concrete()) kernel = spatial.sizes();
  }
  if (kernel.size() != static_cast<std::size_t>(rank) - 2) {
    if (!kernel.empty()) ctx.bad("attribute kernel_shape does not fit the rank");
    return out;
  }
  const Window window = read_window(ctx.node(), kernel);
  if (data.ranked)
    for (int i = 0; i < rank - 2; ++i) {
      const auto at = static_cast<std::size_t>(i) + 2;
      out.dims[at] = window_size(ctx, window, i, data.dims[at]);
    }
  return out;
}

Shape conv_transpose_shape(InferContext& ctx, const Shape& data, const Shape& weight) {
  if (!data.ranked || !weight.ranked) return {};
  const int rank = data.rank();
  if (rank < 3 || weight.rank() != rank)
    ctx.bad("data " + to_string(data) + " and weight " + to_string(weight) + " do not fit");
  unify(ctx, data.dims[1], weight.dims[0], "input channels of data and weight");
  const std::int64_t group = ctx.node().attr("group", std::int64_t{1});
  if (group < 1) ctx.bad(fmt::format("attribute group is {}", group));
  Shape out(std::vector<Dim>(data.dims.size()));
  out.dims[0] = data.dims[0];
  out.dims[1] = product(weight.dims[1], Dim::of(group));
  const Shape spatial(std::vector<Dim>(weight.dims.begin() + 2, weight.dims.end()));
  if (!spatial.concrete()) return out;
  const Window window = read_window(ctx.node(), spatial.sizes());
  const std::vector<std::int64_t> fixed = ctx.node().attr_ints("output_shape");
  const std::vector<std::int64_t> extra = ctx.node().attr_ints("output_padding");
  for (const std::int64_t more : extra)
    if (more < 0 || more > INT32_MAX) ctx.bad(fmt::format("attribute output_padding holds {}", more));
  const bool same_size = window.auto_pad == AutoPad::kSameUpper || window.auto_pad == AutoPad::kSameLower;
  for (int i = 0; i < rank - 2; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const Dim& in = data.dims[at + 2];
    Dim& size = out.dims[at + 2];
    if (!fixed.empty()) {
      if (fixed.size() != window.kernel.size() || fixed[at] < 0)
        ctx.bad("attribute output_shape does not fit");
      size = Dim::of(fixed[at]);
    } else if (same_size) {
      size = product(in, Dim::of(window.strides[at]));
    } else if (in.known()) {
      const std::int64_t more = at < extra.size() ? extra[at] : 0;
      std::int64_t total = 0;
      if (__builtin_mul_overflow(window.strides[at], in.value - 1, &total))
        ctx.bad("the output is too large");
      total += more + window.extent(i) - window.pads_begin[at] - window.pads_end[at];
      if (total < 0) ctx.bad("the pads are larger than the output");
      size = Dim::of(total);
    }
  }
  return out;
}

void check_scale(InferContext& ctx) {
  const Shape& data = ctx.in_shape(0);
  const Shape& scale = ctx.in_shape(1);
  const std::int64_t block = ctx.node().attr("block_size", std::int64_t{0});
  if (block < 0) ctx.bad(fmt::format("attribute block_size is {}", block));
  if (ctx.has_input(2)) {
    const Shape& zero = ctx.in_shape(2);
    const auto single = [](const Shape& shape) {
      return shape.rank() <= 1 && element_count(shape.sizes()) == 1;
    };
    if (scale.concrete() && zero.concrete() && scale.sizes() != zero.sizes() &&
        !(single(scale) && single(zero)))
      ctx.bad("the zero point has shape " + to_string(zero) + ", the scale " + to_string(scale));
  }
  if (!data.ranked || !scale.ranked) return;
  const bool per_tensor =
      scale.rank() == 0 || (scale.rank() == 1 && scale.dims[0].known() && scale.dims[0].value == 1);
  if (block == 0 && per_tensor) return;
  const int axis = checked_axis(ctx, ctx.node().attr("axis", std::int64_t{1}), data.rank());
  const auto at = static_cast<std::size_t>(axis);
  if (block == 0) {
    if (scale.rank() != 1) ctx.bad("the scale " + to_string(scale) + " needs attribute block_size");
    unify(ctx, data.dims[at], scale.dims[0], "size of the axis against number of scales");
    return;
  }
  if (scale.rank() != data.rank())
    ctx.bad("the blocked scale " + to_string(scale) + " needs the rank of the data " + to_string(data));
  for (std::size_t i = 0; i < data.dims.size(); ++i) {
    Dim want = data.dims[i];
    if (i == at) want = want.known() ? Dim::of((want.value + block - 1) / block) : Dim{};
    unify(ctx, want, scale.dims[i], "size of a blocked scale");
  }
}

}  // namespace pare
