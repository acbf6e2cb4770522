// Reductions and other operators along axes: Reduce* (axes as an input), ArgMax, TopK, CumSum.
#include <algorithm>

#include "engine/ir/infer_rules.h"
#include "engine/ir/schema_groups.h"

namespace pare {
namespace {

void reduce(InferContext& ctx) {
  const DType type = ctx.in_dtype(0);
  const Shape& shape = ctx.in_shape(0);
  const bool keep = ctx.node().attr("keepdims", std::int64_t{1}) != 0;
  std::vector<std::int64_t> axes;
  const bool known = !ctx.has_input(1) || known_ints(ctx, 1, axes);
  if (!shape.ranked) return ctx.set_out(0, type, {});
  if (!known) {  // at least the rank may be known
    if (keep) return ctx.set_out(0, type, Shape(std::vector<Dim>(shape.dims.size())));
    return ctx.set_out(0, type, {});
  }
  if (axes.empty() && ctx.node().attr("noop_with_empty_axes", std::int64_t{0}) != 0)
    return ctx.set_out(0, type, shape);
  std::vector<int> reduced = checked_axes(ctx, axes, shape.rank());
  std::vector<Dim> dims;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool gone = reduced.empty() || std::binary_search(reduced.begin(), reduced.end(), i);
    if (!gone) dims.push_back(shape.dims[static_cast<std::size_t>(i)]);
    if (gone && keep) dims.push_back(Dim::of(1));
  }
  ctx.set_out(0, type, Shape(std::move(dims)));
}

void arg_reduce(InferContext& ctx) {
  Shape shape = ctx.in_shape(0);
  if (shape.ranked) {
    const int axis = checked_axis(ctx, ctx.node().attr("axis", std::int64_t{0}), shape.rank());
    const auto where = shape.dims.begin() + axis;
    if (where->known() && where->value == 0) ctx.bad("the axis is empty");
    if (ctx.node().attr("keepdims", std::int64_t{1}) != 0) {
      *where = Dim::of(1);
    } else {
      shape.dims.erase(where);
    }
  }
  ctx.set_out(0, DType::kI64, shape);
}

void top_k(InferContext& ctx) {
  Shape shape = ctx.in_shape(0);
  if (shape.ranked) {
    const int axis = checked_axis(ctx, ctx.node().attr("axis", std::int64_t{-1}), shape.rank());
    Dim& dim = shape.dims[static_cast<std::size_t>(axis)];
    std::int64_t k = 0;
    if (known_int(ctx, 1, k)) {
      if (k < 0 || (dim.known() && k > dim.value))
        ctx.bad(fmt::format("k is {}, the axis has {} elements", k, to_string(dim)));
      dim = Dim::of(k);
    } else {
      dim = Dim{};
    }
  }
  ctx.set_out(0, ctx.in_dtype(0), shape);
  ctx.set_out(1, DType::kI64, shape);
}

void cumulative(InferContext& ctx) { same_as_input(ctx); }

constexpr OpSchema kSchemas[] = {
    {"", "ArgMax", 1, 1, 1, 1, arg_reduce},   {"", "ArgMin", 1, 1, 1, 1, arg_reduce},
    {"", "CumProd", 2, 2, 1, 1, cumulative},  {"", "CumSum", 2, 2, 1, 1, cumulative},
    {"", "ReduceL1", 1, 2, 1, 1, reduce},     {"", "ReduceL2", 1, 2, 1, 1, reduce},
    {"", "ReduceLogSum", 1, 2, 1, 1, reduce}, {"", "ReduceLogSumExp", 1, 2, 1, 1, reduce},
    {"", "ReduceMax", 1, 2, 1, 1, reduce},    {"", "ReduceMean", 1, 2, 1, 1, reduce},
    {"", "ReduceMin", 1, 2, 1, 1, reduce},    {"", "ReduceProd", 1, 2, 1, 1, reduce},
    {"", "ReduceSum", 1, 2, 1, 1, reduce},    {"", "ReduceSumSquare", 1, 2, 1, 1, reduce},
    {"", "TopK", 2, 2, 2, 2, top_k},
};

}  // namespace

std::span<const OpSchema> reduce_schemas() { return kSchemas; }

}  // namespace pare
