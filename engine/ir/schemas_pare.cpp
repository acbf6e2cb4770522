// Operators that lowering makes (domain "pare"); no file ever holds them. Maps are channels-last: [N,H,W,C].
#include <algorithm>

#include "engine/ir/infer_rules.h"
#include "engine/ir/schema_groups.h"

namespace pare {
namespace {

// [N,spatial...,C] <-> [N,C,spatial...]; an unranked shape stays so.
Shape to_plain(Shape shape) {
  if (shape.rank() >= 3) std::rotate(shape.dims.begin() + 1, shape.dims.end() - 1, shape.dims.end());
  return shape;
}
Shape to_channels_last(Shape shape) {
  if (shape.rank() >= 3) std::rotate(shape.dims.begin() + 1, shape.dims.begin() + 2, shape.dims.end());
  return shape;
}

void channels_last(InferContext& ctx) {
  need_rank_at_least(ctx, 0, 3);
  ctx.set_out(0, ctx.in_dtype(0), to_channels_last(ctx.in_shape(0)));
}

void plain(InferContext& ctx) {
  need_rank_at_least(ctx, 0, 3);
  ctx.set_out(0, ctx.in_dtype(0), to_plain(ctx.in_shape(0)));
}

void conv(InferContext& ctx) {
  ctx.set_out(0, ctx.in_dtype(0),
              to_channels_last(conv_shape(ctx, to_plain(ctx.in_shape(0)), ctx.in_shape(1))));
}

void conv_transpose(InferContext& ctx) {
  ctx.set_out(0, ctx.in_dtype(0),
              to_channels_last(conv_transpose_shape(ctx, to_plain(ctx.in_shape(0)), ctx.in_shape(1))));
}

Shape product_shape(InferContext& ctx) {
  Shape b = ctx.in_shape(1);
  if (ctx.node().attr("trans_b", std::int64_t{0}) != 0 && b.rank() >= 2)
    std::swap(b.dims[b.dims.size() - 1], b.dims[b.dims.size() - 2]);
  return matmul_shape(ctx, ctx.in_shape(0), b);
}

void matmul(InferContext& ctx) { ctx.set_out(0, ctx.in_dtype(0), product_shape(ctx)); }

// Integer kernels (engine/ops/integer/qlinear.h): y has the type of y_zero, input 8, or is float32.
DType quantized_type(InferContext& ctx) { return ctx.has_input(8) ? ctx.in_dtype(8) : DType::kF32; }

void qconv(InferContext& ctx) {
  ctx.set_out(0, quantized_type(ctx),
              to_channels_last(conv_shape(ctx, to_plain(ctx.in_shape(0)), ctx.in_shape(1))));
}

void qmatmul(InferContext& ctx) { ctx.set_out(0, quantized_type(ctx), product_shape(ctx)); }

// Codes to codes (engine/ops/integer/qcodes.h).
void qadd(InferContext& ctx) { ctx.set_out(0, ctx.in_dtype(7), ctx.in_shape(0)); }
void qlookup(InferContext& ctx) {
  ctx.set_out(0, dtype_attr(ctx, "y_dtype", ctx.in_dtype(0)), ctx.in_shape(0));
}

// Products with packed weights (engine/ops/matmul/wmatmul.h): only the last size changes.
void wmatmul(InferContext& ctx) {
  need_rank_at_least(ctx, 0, 1);
  Shape out = ctx.in_shape(0);
  const Shape& codes = ctx.in_shape(1);
  const bool rows = ctx.node().attr("trans_b", std::int64_t{0}) != 0 || ctx.node().has_attr("format");
  if (out.ranked && codes.ranked) {
    if (codes.rank() != 2) ctx.bad("codes are no matrix: " + to_string(codes));
    out.dims.back() = codes.dims[rows ? 0 : 1];
  } else {
    out = Shape();
  }
  ctx.set_out(0, DType::kF32, out);
}

void decode_blocks(InferContext& ctx) {
  need_rank_at_least(ctx, 0, 1);
  Shape out = ctx.in_shape(0);
  if (out.ranked && out.dims.back().known()) {
    const std::int64_t block = ctx.node().attr("block", std::int64_t{0}),
                       bytes = ctx.node().attr("bytes", std::int64_t{0}), size = out.dims.back().value;
    if (block <= 0 || bytes <= 0 || size % bytes != 0) ctx.bad("rows that are no whole blocks");
    if (block > 0 && bytes > 0) out.dims.back() = Dim::of(size / bytes * block);
  } else {
    out = Shape();
  }
  ctx.set_out(0, DType::kF32, out);
}

void pool(InferContext& ctx) {
  need_rank_at_least(ctx, 0, 3);
  Shape out = ctx.in_shape(0);
  const Window window = read_window(ctx.node(), {});
  if (window.kernel.empty()) ctx.bad("attribute kernel_shape is missing");
  if (out.ranked) {
    if (window.axes() != out.rank() - 2) ctx.bad("attribute kernel_shape does not fit " + to_string(out));
    for (int i = 0; i < window.axes(); ++i) {
      Dim& dim = out.dims[static_cast<std::size_t>(i) + 1];
      dim = window_size(ctx, window, i, dim);
    }
  }
  ctx.set_out(0, ctx.in_dtype(0), out);
}

void global_pool(InferContext& ctx) {
  need_rank_at_least(ctx, 0, 3);
  Shape out = ctx.in_shape(0);
  for (std::size_t i = 1; i + 1 < out.dims.size(); ++i) out.dims[i] = Dim::of(1);
  ctx.set_out(0, ctx.in_dtype(0), out);
}

void same(InferContext& ctx) { same_as_input(ctx); }

void fake_quant(InferContext& ctx) {
  check_scale(ctx);
  same_as_input(ctx);
}

constexpr OpSchema kSchemas[] = {
    {"pare", "AveragePool", 1, 1, 1, 1, pool},
    {"pare", "Conv", 2, 4, 1, 1, conv},
    {"pare", "ConvTranspose", 2, 3, 1, 1, conv_transpose},
    {"pare", "CachedAttention", 6, 6, 1, 1, same},
    {"pare", "DecodeBlocks", 1, 1, 1, 1, decode_blocks},
    {"pare", "FakeQuant", 2, 3, 1, 1, fake_quant},
    {"pare", "GlobalAveragePool", 1, 1, 1, 1, global_pool},
    {"pare", "MatMul", 2, 4, 1, 1, matmul},
    {"pare", "MaxPool", 1, 1, 1, 1, pool},
    {"pare", "QAdd", 8, 8, 1, 1, qadd},
    {"pare", "QConv", 5, 12, 1, 1, qconv},
    {"pare", "QLookup", 2, 2, 1, 1, qlookup},
    {"pare", "QMatMul", 5, 12, 1, 1, qmatmul},
    {"pare", "ToChannelsLast", 1, 1, 1, 1, channels_last},
    {"pare", "ToPlain", 1, 1, 1, 1, plain},
    {"pare", "WMatMul", 2, 6, 1, 1, wmatmul},
};

}  // namespace

std::span<const OpSchema> pare_schemas() { return kSchemas; }

}  // namespace pare
