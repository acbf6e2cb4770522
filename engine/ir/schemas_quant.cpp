// Quantization operators (opset 25) and the integer arithmetic of opset 10 and 21.
#include "engine/ir/infer_rules.h"
#include "engine/ir/schema_groups.h"

namespace pare {
namespace {

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

// Scales and zero points of a factor or a product: one, one a line, or one a line of every matrix. Sizes that
// are not known are not judged.
void need_line_parameters(InferContext& ctx, std::initializer_list<int> which, const Dim& lines,
                          const Shape& batch) {
  Dim all = batch.ranked ? lines : Dim{};
  for (const Dim& dim : batch.dims) all = product(all, dim);
  for (const int i : which) need_one_or(ctx, i, {lines, all});
}

// Of the rows of input a and of y, and of the columns of input b.
void need_matmul_parameters(InferContext& ctx, int a, int b, std::initializer_list<int> of_a,
                            std::initializer_list<int> of_b, std::initializer_list<int> of_y) {
  const Shape &left = ctx.in_shape(a), &right = ctx.in_shape(b);
  if (!left.ranked || !right.ranked) return;
  const auto stack = [](const Shape& s) {
    return s.rank() < 2 ? Shape(std::vector<Dim>{})
                        : Shape(std::vector<Dim>(s.dims.begin(), s.dims.end() - 2));
  };
  const Dim rows = left.rank() < 2 ? Dim::of(1) : left.dims[left.dims.size() - 2],
            columns = right.rank() < 2 ? Dim::of(1) : right.dims.back();
  need_line_parameters(ctx, of_a, rows, stack(left));
  need_line_parameters(ctx, of_b, columns, stack(right));
  need_line_parameters(ctx, of_y, rows, broadcast(ctx, stack(left), stack(right)));
}

void matmul_integer(InferContext& ctx) {
  need_matmul_parameters(ctx, 0, 1, {2}, {3}, {});
  ctx.set_out(0, DType::kI32, matmul_shape(ctx, ctx.in_shape(0), ctx.in_shape(1)));
}

void qlinear_matmul(InferContext& ctx) {
  need_matmul_parameters(ctx, 0, 3, {1, 2}, {4, 5}, {6, 7});
  ctx.set_out(0, ctx.in_dtype(7), matmul_shape(ctx, ctx.in_shape(0), ctx.in_shape(3)));
}

void conv_integer(InferContext& ctx) {
  const Shape y = conv_shape(ctx, ctx.in_shape(0), ctx.in_shape(1));
  need_one_or(ctx, 2);
  need_one_or(ctx, 3, {y.ranked ? y.dims[1] : Dim{}});
  ctx.set_out(0, DType::kI32, y);
}

void qlinear_conv(InferContext& ctx) {
  const Shape y = conv_shape(ctx, ctx.in_shape(0), ctx.in_shape(3));
  const Dim channels = y.ranked ? y.dims[1] : Dim{};
  for (const int i : {1, 2, 6, 7}) need_one_or(ctx, i);
  for (const int i : {4, 5}) need_one_or(ctx, i, {channels});
  need_bias(ctx, 8, channels);
  ctx.set_out(0, ctx.in_dtype(7), y);
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
