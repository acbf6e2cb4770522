// Quantization operators (opset 25) and the integer arithmetic of opset 10 and 21.
#include "engine/ir/infer_rules.h"
#include "engine/ir/schema_groups.h"

namespace pare {
namespace {

// The scale is a scalar (or [1]), [size of the axis], or, with block_size B, the data's shape with the axis
// ceil(n / B) long. The zero point has the scale's shape.
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

void quantize(InferContext& ctx) {
  DType type = dtype_attr(ctx, "output_dtype", DType::kUndefined);
  const DType zero = ctx.in_dtype(2);  // undefined when there is none
  if (type == DType::kUndefined) type = ctx.has_input(2) ? zero : DType::kU8;
  if (zero != DType::kUndefined && type != zero)
    ctx.bad(fmt::format("output_dtype is {}, the zero point {}", name(type), name(zero)));
  check_scale(ctx);
  ctx.set_out(0, type, ctx.in_shape(0));
}

void dequantize(InferContext& ctx) {
  if (ctx.has_input(2)) {
    const DType zero = ctx.in_dtype(2);
    const DType data = ctx.in_dtype(0);
    if (zero != data && zero != DType::kUndefined && data != DType::kUndefined)
      ctx.bad(fmt::format("the data is {}, the zero point {}", name(data), name(zero)));
  }
  check_scale(ctx);
  const DType scale = ctx.in_dtype(1);  // E8M0 is no type of a result
  ctx.set_out(0, dtype_attr(ctx, "output_dtype", scale == DType::kE8M0 ? DType::kF32 : scale),
              ctx.in_shape(0));
}

void dynamic_quantize(InferContext& ctx) {
  ctx.set_out(0, DType::kU8, ctx.in_shape(0));
  ctx.set_out(1, DType::kF32, Shape(std::vector<Dim>{}));
  ctx.set_out(2, DType::kU8, Shape(std::vector<Dim>{}));
}

void matmul_integer(InferContext& ctx) {
  ctx.set_out(0, DType::kI32, matmul_shape(ctx, ctx.in_shape(0), ctx.in_shape(1)));
}

void qlinear_matmul(InferContext& ctx) {
  ctx.set_out(0, ctx.in_dtype(7), matmul_shape(ctx, ctx.in_shape(0), ctx.in_shape(3)));
}

void conv_integer(InferContext& ctx) {
  ctx.set_out(0, DType::kI32, conv_shape(ctx, ctx.in_shape(0), ctx.in_shape(1)));
}

void qlinear_conv(InferContext& ctx) {
  ctx.set_out(0, ctx.in_dtype(7), conv_shape(ctx, ctx.in_shape(0), ctx.in_shape(3)));
}

constexpr OpSchema kSchemas[] = {
    {"", "ConvInteger", 2, 4, 1, 1, conv_integer},
    {"", "DequantizeLinear", 2, 3, 1, 1, dequantize},
    {"", "DynamicQuantizeLinear", 1, 1, 3, 3, dynamic_quantize},
    {"", "MatMulInteger", 2, 4, 1, 1, matmul_integer},
    {"", "QLinearConv", 8, 9, 1, 1, qlinear_conv},
    {"", "QLinearMatMul", 8, 8, 1, 1, qlinear_matmul},
    {"", "QuantizeLinear", 2, 3, 1, 1, quantize},
};

}  // namespace

std::span<const OpSchema> quant_schemas() { return kSchemas; }

}  // namespace pare
