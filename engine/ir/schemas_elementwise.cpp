// One output element from one element of each input, inputs broadcast. Also the operators along one axis that
// keep the shape (Softmax, CumSum is in schemas_reduce), and the random ones.
#include "engine/ir/infer_rules.h"
#include "engine/ir/schema_groups.h"

namespace pare {
namespace {

void same(InferContext& ctx) { same_as_input(ctx); }

void along_axis(InferContext& ctx) {
  if (ctx.in_shape(0).ranked && ctx.in_shape(0).rank() > 0)
    checked_axis(ctx, ctx.node().attr("axis", std::int64_t{-1}), ctx.in_shape(0).rank());
  same_as_input(ctx);
}

void predicate(InferContext& ctx) { ctx.set_out(0, DType::kBool, ctx.in_shape(0)); }

void broadcasting(InferContext& ctx) {
  const DType type = common_dtype(ctx, 0, ctx.inputs());
  ctx.set_out(0, type, broadcast_inputs(ctx, 0, ctx.inputs()));
}

void comparison(InferContext& ctx) {
  common_dtype(ctx, 0, 2);
  ctx.set_out(0, DType::kBool, broadcast_inputs(ctx, 0, 2));
}

void logical(InferContext& ctx) {
  if (common_dtype(ctx, 0, ctx.inputs()) != DType::kBool && ctx.in_dtype(0) != DType::kUndefined)
    ctx.bad(fmt::format("needs bool, has {}", name(ctx.in_dtype(0))));
  ctx.set_out(0, DType::kBool, broadcast_inputs(ctx, 0, ctx.inputs()));
}

void power(InferContext& ctx) { ctx.set_out(0, ctx.in_dtype(0), broadcast_inputs(ctx, 0, 2)); }

// The slope broadcasts to the data, never the other way.
void prelu(InferContext& ctx) {
  common_dtype(ctx, 0, 2);
  const Shape both = broadcast_inputs(ctx, 0, 2);
  const Shape& data = ctx.in_shape(0);
  if (both.ranked && both.rank() != data.rank())
    ctx.bad("the slope " + to_string(ctx.in_shape(1)) + " does not broadcast to " + to_string(data));
  same_as_input(ctx);
}

void where(InferContext& ctx) {
  if (ctx.in_dtype(0) != DType::kBool && ctx.in_dtype(0) != DType::kUndefined)
    ctx.bad(fmt::format("the condition must be bool, is {}", name(ctx.in_dtype(0))));
  ctx.set_out(0, common_dtype(ctx, 1, 3), broadcast_inputs(ctx, 0, 3));
}

void clip(InferContext& ctx) {
  common_dtype(ctx, 0, ctx.inputs());
  same_as_input(ctx);
}

void dropout(InferContext& ctx) {
  same_as_input(ctx);
  ctx.set_out(1, DType::kBool, ctx.in_shape(0));
}

void cast(InferContext& ctx) {
  const DType to = dtype_attr(ctx, "to", DType::kUndefined);
  if (to == DType::kUndefined) ctx.bad("attribute to is missing");
  ctx.set_out(0, to, ctx.in_shape(0));
}

void cast_like(InferContext& ctx) { ctx.set_out(0, ctx.in_dtype(1), ctx.in_shape(0)); }

void bit_cast(InferContext& ctx) {
  const DType to = dtype_attr(ctx, "to", DType::kUndefined);
  if (to == DType::kUndefined) ctx.bad("attribute to is missing");
  if (ctx.in_dtype(0) != DType::kUndefined && bits(to) != bits(ctx.in_dtype(0)))
    ctx.bad(fmt::format("{} and {} differ in size", name(ctx.in_dtype(0)), name(to)));
  ctx.set_out(0, to, ctx.in_shape(0));
}

void random_shaped(InferContext& ctx) {
  const std::vector<std::int64_t> sizes = ctx.node().attr_ints("shape");
  for (const std::int64_t size : sizes)
    if (size < 0) ctx.bad(fmt::format("attribute shape holds {}", size));
  ctx.set_out(0, dtype_attr(ctx, "dtype", DType::kF32), Shape(sizes));
}

void random_like(InferContext& ctx) {
  ctx.set_out(0, dtype_attr(ctx, "dtype", ctx.in_dtype(0)), ctx.in_shape(0));
}

void multinomial(InferContext& ctx) {
  need_rank(ctx, 0, 2);
  Shape shape;
  if (ctx.in_shape(0).ranked)
    shape = Shape({ctx.in_shape(0).dims[0], Dim::of(ctx.node().attr("sample_size", std::int64_t{1}))});
  ctx.set_out(0, dtype_attr(ctx, "dtype", DType::kI32), shape);
}

constexpr OpSchema kSchemas[] = {
    {"", "Abs", 1, 1, 1, 1, same},
    {"", "Acos", 1, 1, 1, 1, same},
    {"", "Acosh", 1, 1, 1, 1, same},
    {"", "Add", 2, 2, 1, 1, broadcasting},
    {"", "And", 2, 2, 1, 1, logical},
    {"", "Asin", 1, 1, 1, 1, same},
    {"", "Asinh", 1, 1, 1, 1, same},
    {"", "Atan", 1, 1, 1, 1, same},
    {"", "Atanh", 1, 1, 1, 1, same},
    {"", "Bernoulli", 1, 1, 1, 1, random_like, false},
    {"", "BitCast", 1, 1, 1, 1, bit_cast},
    {"", "BitShift", 2, 2, 1, 1, broadcasting},
    {"", "BitwiseAnd", 2, 2, 1, 1, broadcasting},
    {"", "BitwiseNot", 1, 1, 1, 1, same},
    {"", "BitwiseOr", 2, 2, 1, 1, broadcasting},
    {"", "BitwiseXor", 2, 2, 1, 1, broadcasting},
    {"", "Cast", 1, 1, 1, 1, cast},
    {"", "CastLike", 2, 2, 1, 1, cast_like},
    {"", "Ceil", 1, 1, 1, 1, same},
    {"", "Celu", 1, 1, 1, 1, same},
    {"", "Clip", 1, 3, 1, 1, clip},
    {"", "Cos", 1, 1, 1, 1, same},
    {"", "Cosh", 1, 1, 1, 1, same},
    {"", "Div", 2, 2, 1, 1, broadcasting},
    {"", "Dropout", 1, 3, 1, 2, dropout},
    {"", "Elu", 1, 1, 1, 1, same},
    {"", "Equal", 2, 2, 1, 1, comparison},
    {"", "Erf", 1, 1, 1, 1, same},
    {"", "Exp", 1, 1, 1, 1, same},
    {"", "Floor", 1, 1, 1, 1, same},
    {"", "Gelu", 1, 1, 1, 1, same},
    {"", "Greater", 2, 2, 1, 1, comparison},
    {"", "GreaterOrEqual", 2, 2, 1, 1, comparison},
    {"", "HardSigmoid", 1, 1, 1, 1, same},
    {"", "HardSwish", 1, 1, 1, 1, same},
    {"", "Hardmax", 1, 1, 1, 1, along_axis},
    {"", "IsInf", 1, 1, 1, 1, predicate},
    {"", "IsNaN", 1, 1, 1, 1, predicate},
    {"", "LeakyRelu", 1, 1, 1, 1, same},
    {"", "Less", 2, 2, 1, 1, comparison},
    {"", "LessOrEqual", 2, 2, 1, 1, comparison},
    {"", "Log", 1, 1, 1, 1, same},
    {"", "LogSoftmax", 1, 1, 1, 1, along_axis},
    {"", "LpNormalization", 1, 1, 1, 1, along_axis},
    {"", "Max", 1, -1, 1, 1, broadcasting},
    {"", "Mean", 1, -1, 1, 1, broadcasting},
    {"", "MeanVarianceNormalization", 1, 1, 1, 1, same},
    {"", "Min", 1, -1, 1, 1, broadcasting},
    {"", "Mish", 1, 1, 1, 1, same},
    {"", "Mod", 2, 2, 1, 1, broadcasting},
    {"", "Mul", 2, 2, 1, 1, broadcasting},
    {"", "Multinomial", 1, 1, 1, 1, multinomial, false},
    {"", "Neg", 1, 1, 1, 1, same},
    {"", "Not", 1, 1, 1, 1, logical},
    {"", "Or", 2, 2, 1, 1, logical},
    {"", "PRelu", 2, 2, 1, 1, prelu},
    {"", "Pow", 2, 2, 1, 1, power},
    {"", "RandomNormal", 0, 0, 1, 1, random_shaped, false},
    {"", "RandomNormalLike", 1, 1, 1, 1, random_like, false},
    {"", "RandomUniform", 0, 0, 1, 1, random_shaped, false},
    {"", "RandomUniformLike", 1, 1, 1, 1, random_like, false},
    {"", "Reciprocal", 1, 1, 1, 1, same},
    {"", "Relu", 1, 1, 1, 1, same},
    {"", "Round", 1, 1, 1, 1, same},
    {"", "Selu", 1, 1, 1, 1, same},
    {"", "Shrink", 1, 1, 1, 1, same},
    {"", "Sigmoid", 1, 1, 1, 1, same},
    {"", "Sign", 1, 1, 1, 1, same},
    {"", "Sin", 1, 1, 1, 1, same},
    {"", "Sinh", 1, 1, 1, 1, same},
    {"", "Softmax", 1, 1, 1, 1, along_axis},
    {"", "Softplus", 1, 1, 1, 1, same},
    {"", "Softsign", 1, 1, 1, 1, same},
    {"", "Sqrt", 1, 1, 1, 1, same},
    {"", "Sub", 2, 2, 1, 1, broadcasting},
    {"", "Sum", 1, -1, 1, 1, broadcasting},
    {"", "Swish", 1, 1, 1, 1, same},
    {"", "Tan", 1, 1, 1, 1, same},
    {"", "Tanh", 1, 1, 1, 1, same},
    {"", "ThresholdedRelu", 1, 1, 1, 1, same},
    {"", "Where", 3, 3, 1, 1, where},
    {"", "Xor", 2, 2, 1, 1, logical},
};

}  // namespace

std::span<const OpSchema> elementwise_schemas() { return kSchemas; }

}  // namespace pare
