// Tensors made of sizes and numbers: Shape, Size, Constant, ConstantOfShape, Range, EyeLike, OneHot.
#include <algorithm>
#include <cmath>

#include "engine/ir/infer_rules.h"
#include "engine/ir/schema_groups.h"
#include "engine/numeric/convert.h"

namespace pare {
namespace {

void shape_of(InferContext& ctx) {
  const Shape& shape = ctx.in_shape(0);
  Dim count;
  if (shape.ranked) {
    const std::int64_t rank = shape.rank();
    const auto place = [rank](std::int64_t at) {
      return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank);
    };
    const std::int64_t start = place(ctx.node().attr("start", std::int64_t{0}));
    const std::int64_t end = place(ctx.node().attr("end", rank));
    count = Dim::of(std::max<std::int64_t>(0, end - start));
  }
  ctx.set_out(0, DType::kI64, Shape({count}));
}

void size_of(InferContext& ctx) { ctx.set_out(0, DType::kI64, Shape(std::vector<Dim>{})); }

void constant_of_shape(InferContext& ctx) {
  const Tensor* value = ctx.node().attr_tensor("value");
  ctx.set_out(0, value == nullptr ? DType::kF32 : value->dtype(), sizes_input(ctx, 0));
}

// The one number of an input of any number type, as double.
bool known_number(InferContext& ctx, int i, double& out) {
  const Tensor* value = ctx.in_value(i);
  if (value == nullptr) return false;
  if (value->size() != 1)
    ctx.bad(fmt::format("input {} must be one number, is {}", i, to_string(value->dims())));
  convert(value->view(), {DType::kF64, value->dims(), &out});
  return true;
}

// ceil((limit - start) / delta), at least 0.
bool range_count(InferContext& ctx, std::int64_t& count) {
  double start = 0, limit = 0, delta = 0;
  if (!known_number(ctx, 0, start) || !known_number(ctx, 1, limit) || !known_number(ctx, 2, delta))
    return false;
  if (is_integer(ctx.in_dtype(0))) {
    const std::int64_t first = ctx.in_value(0)->to_ints()[0], last = ctx.in_value(1)->to_ints()[0];
    const std::int64_t step = ctx.in_value(2)->to_ints()[0];
    std::int64_t distance = 0;
    if (step == 0) ctx.bad("delta is 0");
    if (__builtin_sub_overflow(last, first, &distance) || step == INT64_MIN) ctx.bad("the range is too long");
    const bool up = distance > 0 && step > 0, down = distance < 0 && step < 0;
    count = up ? (distance - 1) / step + 1 : down ? (-(distance + 1)) / -step + 1 : 0;
    return true;
  }
  const double length = std::ceil((limit - start) / delta);
  constexpr double kLongest = 1e15;  // exact in double, and far above any memory
  if (!(length <= kLongest)) ctx.bad("the range is too long, or not a number");
  count = length > 0 ? static_cast<std::int64_t>(length) : 0;
  return true;
}

void range(InferContext& ctx) {
  const DType type = common_dtype(ctx, 0, 3);
  for (int i = 0; i < 3; ++i) need_one_or(ctx, i);
  std::int64_t count = 0;
  ctx.set_out(0, type, Shape({range_count(ctx, count) ? Dim::of(count) : Dim{}}));
}

void constant(InferContext& ctx) {
  const Node& node = ctx.node();
  const Shape scalar(std::vector<Dim>{});
  if (const Tensor* value = node.attr_tensor("value"))
    ctx.set_out(0, value->dtype(), Shape(value->dims()));
  else if (node.has_attr("value_float"))
    ctx.set_out(0, DType::kF32, scalar);
  else if (node.has_attr("value_int"))
    ctx.set_out(0, DType::kI64, scalar);
  else if (node.has_attr("value_floats"))
    ctx.set_out(0, DType::kF32,
                Shape({Dim::of(static_cast<std::int64_t>(node.attr_floats("value_floats").size()))}));
  else if (node.has_attr("value_ints"))
    ctx.set_out(0, DType::kI64,
                Shape({Dim::of(static_cast<std::int64_t>(node.attr_ints("value_ints").size()))}));
}

void one_hot(InferContext& ctx) {
  Shape shape = ctx.in_shape(0);
  need_one_or(ctx, 1);
  need_rank(ctx, 2, 1);
  if (ctx.in_shape(2).ranked) unify(ctx, Dim::of(2), ctx.in_shape(2).dims[0], "values for off and on");
  double depth = 0;
  if (shape.ranked) {
    const int axis = checked_axis(ctx, ctx.node().attr("axis", std::int64_t{-1}), shape.rank() + 1);
    const bool known = known_number(ctx, 1, depth);
    if (known && !(depth >= 0 && depth < 1e15)) ctx.bad("the depth is negative or too large");
    shape.dims.insert(shape.dims.begin() + axis, known ? Dim::of(static_cast<std::int64_t>(depth)) : Dim{});
  }
  ctx.set_out(0, ctx.in_dtype(2), shape);
}

void eye_like(InferContext& ctx) {
  need_rank(ctx, 0, 2);
  ctx.set_out(0, dtype_attr(ctx, "dtype", ctx.in_dtype(0)), ctx.in_shape(0));
}

constexpr OpSchema kSchemas[] = {
    {"", "Constant", 0, 0, 1, 1, constant}, {"", "ConstantOfShape", 1, 1, 1, 1, constant_of_shape},
    {"", "EyeLike", 1, 1, 1, 1, eye_like},  {"", "OneHot", 3, 3, 1, 1, one_hot},
    {"", "Range", 3, 3, 1, 1, range},       {"", "Shape", 1, 1, 1, 1, shape_of},
    {"", "Size", 1, 1, 1, 1, size_of},
};

}  // namespace

std::span<const OpSchema> size_schemas() { return kSchemas; }

}  // namespace pare
