// Images and signals: sampling between elements, boxes, blocks, spectra.
#include <algorithm>

#include "engine/ir/infer_rules.h"
#include "engine/ir/schema_groups.h"

namespace pare {
namespace {

void grid_sample(InferContext& ctx) {
  need_rank_at_least(ctx, 0, 3);
  const Shape &x = ctx.in_shape(0), &grid = ctx.in_shape(1);
  if (!x.ranked || !grid.ranked) return ctx.set_out(0, ctx.in_dtype(0), {});
  if (grid.rank() != x.rank() || (grid.dims.back().known() && grid.dims.back().value != x.rank() - 2))
    ctx.bad("a grid " + to_string(grid) + " does not fit " + to_string(x));
  std::vector<Dim> dims = {unify(ctx, x.dims[0], grid.dims[0], "batch of the data and the grid"), x.dims[1]};
  dims.insert(dims.end(), grid.dims.begin() + 1, grid.dims.end() - 1);
  ctx.set_out(0, ctx.in_dtype(0), Shape(std::move(dims)));
}

void deform_conv(InferContext& ctx) {
  const std::int64_t group = ctx.node().attr("offset_group", std::int64_t{1});
  if (group < 1) ctx.bad(fmt::format("attribute offset_group is {}", group));
  const Shape out = conv_shape(ctx, ctx.in_shape(0), ctx.in_shape(1));
  if (out.ranked) need_bias(ctx, 3, out.dims[1]);
  ctx.set_out(0, common_dtype(ctx, 0, ctx.inputs()), out);
}

void affine_grid(InferContext& ctx) {
  need_rank(ctx, 0, 3);
  const Shape size = sizes_input(ctx, 1);
  if (!size.ranked) return ctx.set_out(0, ctx.in_dtype(0), {});
  if (size.rank() != 4 && size.rank() != 5)
    ctx.bad(fmt::format("a size of {} numbers, not 4 or 5", size.rank()));
  const std::int64_t axes = size.rank() - 2;
  const Shape& theta = ctx.in_shape(0);
  if (theta.ranked) {
    unify(ctx, theta.dims[0], size.dims[0], "batch of theta and size");
    unify(ctx, theta.dims[1], Dim::of(axes), "rows of theta");
    unify(ctx, theta.dims[2], Dim::of(axes + 1), "columns of theta");
  }
  std::vector<Dim> dims = {size.dims[0]};
  dims.insert(dims.end(), size.dims.begin() + 2, size.dims.end());
  dims.push_back(Dim::of(axes));
  ctx.set_out(0, ctx.in_dtype(0), Shape(std::move(dims)));
}

// [boxes, channels, rows, columns] from x [n, channels, h, w] and boxes [boxes, numbers].
void pooled_boxes(InferContext& ctx, std::int64_t numbers, std::int64_t rows, std::int64_t columns) {
  need_rank(ctx, 0, 4);
  need_rank(ctx, 1, 2);
  if (rows < 1 || columns < 1 || rows > INT32_MAX || columns > INT32_MAX)
    ctx.bad(fmt::format("an output of {} by {}", rows, columns));
  const Shape &x = ctx.in_shape(0), &boxes = ctx.in_shape(1);
  if (boxes.ranked) unify(ctx, boxes.dims[1], Dim::of(numbers), "numbers a box");
  ctx.set_out(0, ctx.in_dtype(0),
              Shape({boxes.ranked ? boxes.dims[0] : Dim{}, x.ranked ? x.dims[1] : Dim{}, Dim::of(rows),
                     Dim::of(columns)}));
}

void roi_align(InferContext& ctx) {
  need_rank(ctx, 2, 1);
  if (ctx.in_shape(1).rank() == 2 && ctx.in_shape(2).ranked)
    unify(ctx, ctx.in_shape(1).dims[0], ctx.in_shape(2).dims[0], "boxes and batch_indices");
  pooled_boxes(ctx, 4, ctx.node().attr("output_height", std::int64_t{1}),
               ctx.node().attr("output_width", std::int64_t{1}));
}

void max_roi_pool(InferContext& ctx) {
  const std::vector<std::int64_t> sides = ctx.node().attr_ints("pooled_shape");
  if (sides.size() != 2) ctx.bad("attribute pooled_shape must be two sizes");
  pooled_boxes(ctx, 5, sides[0], sides[1]);
}

void non_max_suppression(InferContext& ctx) {
  need_rank(ctx, 0, 3);
  need_rank(ctx, 1, 3);
  const Shape &boxes = ctx.in_shape(0), &scores = ctx.in_shape(1);
  if (boxes.ranked) unify(ctx, boxes.dims[2], Dim::of(4), "numbers a box");
  if (boxes.ranked && scores.ranked) {
    unify(ctx, boxes.dims[0], scores.dims[0], "batch of boxes and scores");
    unify(ctx, boxes.dims[1], scores.dims[2], "boxes and their scores");
  }
  ctx.set_out(0, DType::kI64, Shape({Dim{}, Dim::of(3)}));
}

void col2im(InferContext& ctx) {
  need_rank(ctx, 0, 3);
  const Shape &x = ctx.in_shape(0), image = sizes_input(ctx, 1), block = sizes_input(ctx, 2);
  if (!image.ranked) return ctx.set_out(0, ctx.in_dtype(0), {});
  Dim channels;
  if (block.concrete()) {
    if (block.rank() != image.rank()) ctx.bad("image_shape and block_shape differ in length");
    read_window(ctx.node(), block.sizes());
    const std::int64_t each = element_count(block.sizes());
    if (x.ranked && x.dims[1].known()) {
      if (each < 1 || x.dims[1].value % each != 0)
        ctx.bad(fmt::format("{} rows in blocks of {}", x.dims[1].value, each));
      channels = Dim::of(x.dims[1].value / each);
    }
  }
  std::vector<Dim> dims = {x.ranked ? x.dims[0] : Dim{}, channels};
  dims.insert(dims.end(), image.dims.begin(), image.dims.end());
  ctx.set_out(0, ctx.in_dtype(0), Shape(std::move(dims)));
}

void max_unpool(InferContext& ctx) {
  need_rank_at_least(ctx, 0, 3);
  Shape out = ctx.in_shape(0);
  const Window window = read_window(ctx.node(), {});
  if (window.kernel.empty()) ctx.bad("attribute kernel_shape is missing");
  if (out.ranked && static_cast<int>(window.kernel.size()) != out.rank() - 2)
    ctx.bad("attribute kernel_shape does not fit " + to_string(out));
  if (out.ranked && ctx.in_shape(1).concrete() && out.concrete() && ctx.in_shape(1).sizes() != out.sizes())
    ctx.bad("indices " + to_string(ctx.in_shape(1)) + " do not fit " + to_string(out));
  for (std::size_t i = 2; i < out.dims.size(); ++i) {
    Dim& dim = out.dims[i];
    if (!dim.known()) {
      dim = Dim{};
      continue;
    }
    std::int64_t size = 0;
    if (__builtin_mul_overflow(dim.value - 1, window.strides[i - 2], &size))
      ctx.bad("the output is too large");
    size += window.kernel[i - 2] - window.pads_begin[i - 2] - window.pads_end[i - 2];
    if (size < 0) ctx.bad("the pads are larger than the output");
    dim = Dim::of(size);
  }
  if (ctx.has_input(2)) {
    const Shape given = sizes_input(ctx, 2);
    if (given.ranked && out.ranked && given.rank() != out.rank())
      ctx.bad("output_shape does not fit the rank");
    out = given.ranked || !out.ranked ? given : Shape(std::vector<Dim>(out.dims.size()));
  }
  ctx.set_out(0, ctx.in_dtype(0), out);
}

void center_crop_pad(InferContext& ctx) {
  Shape out = ctx.in_shape(0);
  if (!out.ranked) return ctx.set_out(0, ctx.in_dtype(0), {});
  std::vector<std::int64_t> axes = ctx.node().attr_ints("axes");
  if (axes.empty())
    for (int i = 0; i < out.rank(); ++i) axes.push_back(i);
  checked_axes(ctx, axes, out.rank());
  const Shape sizes = sizes_input(ctx, 1);
  if (sizes.ranked && sizes.dims.size() != axes.size())
    ctx.bad(fmt::format("{} sizes for {} axes", sizes.rank(), axes.size()));
  for (std::size_t i = 0; i < axes.size(); ++i)
    out.dims[static_cast<std::size_t>(checked_axis(ctx, axes[i], out.rank()))] =
        sizes.ranked ? sizes.dims[i] : Dim{};
  ctx.set_out(0, ctx.in_dtype(0), out);
}

// --- spectra

constexpr std::int64_t kLongest = std::int64_t{1} << 40;  // beyond any memory; products with 2 stay in int64

bool known_length(InferContext& ctx, int i, std::int64_t& out) {
  if (!known_int(ctx, i, out)) return false;
  if (out < 1 || out > kLongest) ctx.bad(fmt::format("input {} is {}", i, out));
  return true;
}

Dim half_and_one(const Dim& n) { return n.known() ? Dim::of(n.value / 2 + 1) : Dim{}; }

void dft(InferContext& ctx) {
  need_rank_at_least(ctx, 0, 2);
  Shape out = ctx.in_shape(0);
  std::int64_t axis = -2, length = 0;
  if (!out.ranked) return ctx.set_out(0, ctx.in_dtype(0), {});
  const bool one = ctx.node().attr("onesided", std::int64_t{0}) != 0,
             inverse = ctx.node().attr("inverse", std::int64_t{0}) != 0;
  const int rank = out.rank();
  out.dims.back() = Dim::of(one && inverse ? 1 : 2);
  if (ctx.has_input(2) && !known_int(ctx, 2, axis)) {
    std::vector<Dim> unknown(out.dims.size());
    unknown.back() = out.dims.back();
    return ctx.set_out(0, ctx.in_dtype(0), Shape(std::move(unknown)));
  }
  const int at = checked_axis(ctx, axis, rank);
  if (at == rank - 1) ctx.bad("the last axis holds the parts of a number");
  Dim& dim = out.dims[static_cast<std::size_t>(at)];
  if (ctx.has_input(1)) {
    dim = known_length(ctx, 1, length) ? Dim::of(length) : Dim{};
  } else if (one && inverse) {
    if (dim.known() && (dim.value < 2 || dim.value > kLongest)) ctx.bad("too few or too many elements");
    dim = dim.known() ? Dim::of(2 * (dim.value - 1)) : Dim{};
  }
  if (one && !inverse) dim = half_and_one(dim);
  ctx.set_out(0, ctx.in_dtype(0), out);
}

void stft(InferContext& ctx) {
  need_rank(ctx, 0, 3);
  const Shape& signal = ctx.in_shape(0);
  std::int64_t step = 0, length = 0;
  Dim n = signal.ranked ? signal.dims[1] : Dim{};
  if (ctx.has_input(2)) {
    need_rank(ctx, 2, 1);
    n = ctx.in_shape(2).ranked ? ctx.in_shape(2).dims[0] : Dim{};
  }
  if (ctx.has_input(3)) n = known_length(ctx, 3, length) ? Dim::of(length) : Dim{};
  Dim frames;
  if (known_length(ctx, 1, step) && n.known() && signal.ranked && signal.dims[1].known()) {
    if (n.value < 1 || n.value > signal.dims[1].value)
      ctx.bad(fmt::format("frames of {} in a signal of {}", n.value, signal.dims[1].value));
    frames = Dim::of((signal.dims[1].value - n.value) / step + 1);
  }
  const bool one = ctx.node().attr("onesided", std::int64_t{1}) != 0;
  ctx.set_out(0, ctx.in_dtype(0),
              Shape({signal.ranked ? signal.dims[0] : Dim{}, frames, one ? half_and_one(n) : n, Dim::of(2)}));
}

void mel_weight_matrix(InferContext& ctx) {
  for (int i = 0; i < 5; ++i) need_one_or(ctx, i);
  std::int64_t bins = 0, length = 0;
  const Dim columns = known_length(ctx, 0, bins) ? Dim::of(bins) : Dim{};
  const Dim rows = known_length(ctx, 1, length) ? Dim::of(length / 2 + 1) : Dim{};
  ctx.set_out(0, dtype_attr(ctx, "output_datatype", DType::kF32), Shape({rows, columns}));
}

constexpr OpSchema kSchemas[] = {
    {"", "AffineGrid", 2, 2, 1, 1, affine_grid},
    {"", "CenterCropPad", 2, 2, 1, 1, center_crop_pad},
    {"", "Col2Im", 3, 3, 1, 1, col2im},
    {"", "DFT", 1, 3, 1, 1, dft},
    {"", "DeformConv", 3, 5, 1, 1, deform_conv},
    {"", "GridSample", 2, 2, 1, 1, grid_sample},
    {"", "MaxRoiPool", 2, 2, 1, 1, max_roi_pool},
    {"", "MaxUnpool", 2, 3, 1, 1, max_unpool},
    {"", "MelWeightMatrix", 5, 5, 1, 1, mel_weight_matrix},
    {"", "NonMaxSuppression", 2, 5, 1, 1, non_max_suppression},
    {"", "RoiAlign", 3, 3, 1, 1, roi_align},
    {"", "STFT", 2, 4, 1, 1, stft},
};

}  // namespace

std::span<const OpSchema> vision_schemas() { return kSchemas; }

}  // namespace pare
