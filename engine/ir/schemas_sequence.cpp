// Sequences of tensors, and optionals. SequenceMap has a body: infer.cpp.
#include "engine/ir/infer_rules.h"
#include "engine/ir/schema_groups.h"

namespace pare {
namespace {

using Kind = ValueKind;

// What is true of both.
Shape common(const Shape& a, const Shape& b) {
  if (!a.ranked || !b.ranked || a.rank() != b.rank()) return {};
  Shape out = a;
  for (std::size_t i = 0; i < out.dims.size(); ++i)
    if (!a.dims[i].same(b.dims[i])) out.dims[i] = Dim{};
  return out;
}

void need_sequence(InferContext& ctx) {
  if (ctx.in_kind(0) != Kind::kSequence) ctx.bad("input 0 is no sequence");
}

void sequence(InferContext& ctx, DType dtype, Shape shape) {
  ctx.set_out(0, dtype, std::move(shape));
  ctx.set_kind(0, Kind::kSequence);
}

void empty(InferContext& ctx) { sequence(ctx, dtype_attr(ctx, "dtype", DType::kF32), {}); }

void construct(InferContext& ctx) {
  const DType type = common_dtype(ctx, 0, ctx.inputs());
  Shape shape = ctx.in_shape(0);
  for (int i = 1; i < ctx.inputs(); ++i) shape = common(shape, ctx.in_shape(i));
  sequence(ctx, type, std::move(shape));
}

void at(InferContext& ctx) {
  need_sequence(ctx);
  ctx.set_out(0, ctx.in_dtype(0), ctx.in_shape(0));
}

// The shape of an empty sequence is unranked, so what is put into one is all that is known, and not enough:
// the other elements may differ.
void insert(InferContext& ctx) {
  need_sequence(ctx);
  if (ctx.in_dtype(0) != ctx.in_dtype(1) && ctx.in_dtype(0) != DType::kUndefined)
    ctx.bad(fmt::format("a {} goes into a sequence of {}", name(ctx.in_dtype(1)), name(ctx.in_dtype(0))));
  sequence(ctx, ctx.in_dtype(1), common(ctx.in_shape(0), ctx.in_shape(1)));
}

void erase(InferContext& ctx) {
  need_sequence(ctx);
  sequence(ctx, ctx.in_dtype(0), ctx.in_shape(0));
}

void length(InferContext& ctx) {
  need_sequence(ctx);
  ctx.set_out(0, DType::kI64, Shape(std::vector<Dim>{}));
}

void concat_from(InferContext& ctx) {
  need_sequence(ctx);
  Shape shape = ctx.in_shape(0);
  if (shape.ranked) {
    const bool fresh = ctx.node().attr("new_axis", std::int64_t{0}) != 0;
    const int axis =
        checked_axis(ctx, ctx.node().attr("axis", std::int64_t{0}), shape.rank() + (fresh ? 1 : 0));
    if (fresh)
      shape.dims.insert(shape.dims.begin() + axis, Dim{});
    else
      shape.dims[static_cast<std::size_t>(axis)] = Dim{};
  }
  ctx.set_out(0, ctx.in_dtype(0), std::move(shape));
}

void split_to(InferContext& ctx) {
  Shape shape = ctx.in_shape(0);
  if (shape.ranked) {
    const int axis = checked_axis(ctx, ctx.node().attr("axis", std::int64_t{0}), shape.rank());
    const bool given = ctx.has_input(1);
    if (!given && ctx.node().attr("keepdims", std::int64_t{1}) == 0)
      shape.dims.erase(shape.dims.begin() + axis);
    else
      shape.dims[static_cast<std::size_t>(axis)] = given ? Dim{} : Dim::of(1);
  }
  sequence(ctx, ctx.in_dtype(0), std::move(shape));
}

void optional(InferContext& ctx) {
  const bool given = ctx.has_input(0);
  const bool many =
      given ? ctx.in_kind(0) == Kind::kSequence : ctx.node().attr("sequence", std::int64_t{0}) != 0;
  ctx.set_out(0, given ? ctx.in_dtype(0) : dtype_attr(ctx, "type", DType::kF32),
              given ? ctx.in_shape(0) : Shape());
  ctx.set_kind(0, many ? Kind::kOptionalSequence : Kind::kOptional);
}

void has_element(InferContext& ctx) { ctx.set_out(0, DType::kBool, Shape(std::vector<Dim>{})); }

void get_element(InferContext& ctx) {
  ctx.set_out(0, ctx.in_dtype(0), ctx.in_shape(0));
  const Kind kind = ctx.in_kind(0);
  if (kind == Kind::kSequence || kind == Kind::kOptionalSequence) ctx.set_kind(0, Kind::kSequence);
}

void identity(InferContext& ctx) {
  ctx.set_out(0, ctx.in_dtype(0), ctx.in_shape(0));
  if (ctx.in_kind(0) != Kind::kTensor) ctx.set_kind(0, ctx.in_kind(0));
}

constexpr OpSchema kSchemas[] = {
    {"", "ConcatFromSequence", 1, 1, 1, 1, concat_from, true, false},
    {"", "Identity", 1, 1, 1, 1, identity, true, false},
    {"", "Optional", 0, 1, 1, 1, optional, true, false},
    {"", "OptionalGetElement", 1, 1, 1, 1, get_element, true, false},
    {"", "OptionalHasElement", 0, 1, 1, 1, has_element, true, false},
    {"", "SequenceAt", 2, 2, 1, 1, at, true, false},
    {"", "SequenceConstruct", 1, -1, 1, 1, construct, true, false},
    {"", "SequenceEmpty", 0, 0, 1, 1, empty, true, false},
    {"", "SequenceErase", 1, 2, 1, 1, erase, true, false},
    {"", "SequenceInsert", 2, 3, 1, 1, insert, true, false},
    {"", "SequenceLength", 1, 1, 1, 1, length, true, false},
    {"", "SplitToSequence", 1, 2, 1, 1, split_to, true, false},
};

}  // namespace

std::span<const OpSchema> sequence_schemas() { return kSchemas; }

}  // namespace pare
