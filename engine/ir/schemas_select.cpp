// NonZero, Compress, Unique: how many elements they pick is known when they have run.
#include "engine/ir/infer_rules.h"
#include "engine/ir/schema_groups.h"

namespace pare {
namespace {

void non_zero(InferContext& ctx) {
  const Shape& in = ctx.in_shape(0);
  ctx.set_out(0, DType::kI64, Shape({in.ranked ? Dim::of(in.rank()) : Dim{}, Dim{}}));
}

// The input with the size of attribute `axis` open; one open axis without the attribute.
Shape picked(InferContext& ctx) {
  Shape shape = ctx.in_shape(0);
  if (!ctx.node().has_attr("axis")) return Shape({Dim{}});
  if (!shape.ranked) return shape;
  const int axis = checked_axis(ctx, ctx.node().attr("axis", std::int64_t{0}), shape.rank());
  shape.dims[static_cast<std::size_t>(axis)] = Dim{};
  return shape;
}

void compress(InferContext& ctx) {
  need_rank(ctx, 1, 1);
  ctx.set_out(0, ctx.in_dtype(0), picked(ctx));
}

void unique(InferContext& ctx) {
  const Shape& in = ctx.in_shape(0);
  ctx.set_out(0, ctx.in_dtype(0), picked(ctx));
  ctx.set_out(1, DType::kI64, Shape({Dim{}}));
  Dim all;
  if (in.ranked && ctx.node().has_attr("axis")) {
    const int axis = checked_axis(ctx, ctx.node().attr("axis", std::int64_t{0}), in.rank());
    all = in.dims[static_cast<std::size_t>(axis)];
  } else if (in.ranked) {
    all = Dim::of(1);
    for (const Dim& dim : in.dims) all = product(all, dim);
  }
  ctx.set_out(2, DType::kI64, Shape({all}));
  ctx.set_out(3, DType::kI64, Shape({Dim{}}));
}

constexpr OpSchema kSchemas[] = {
    {"", "Compress", 2, 2, 1, 1, compress},
    {"", "NonZero", 1, 1, 1, 1, non_zero},
    {"", "Unique", 1, 1, 1, 4, unique},
};

}  // namespace

std::span<const OpSchema> select_schemas() { return kSchemas; }

}  // namespace pare
