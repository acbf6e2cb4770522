// Layers: products, convolutions, pooling, normalization, recurrent layers, attention, resizing.
#include <algorithm>
#include <cmath>

#include "engine/ir/einsum.h"
#include "engine/ir/infer_rules.h"
#include "engine/ir/schema_groups.h"

namespace pare {
namespace {

void same(InferContext& ctx) { same_as_input(ctx); }

void matmul(InferContext& ctx) {
  ctx.set_out(0, common_dtype(ctx, 0, 2), matmul_shape(ctx, ctx.in_shape(0), ctx.in_shape(1)));
}

void gemm(InferContext& ctx) {
  need_rank(ctx, 0, 2);
  need_rank(ctx, 1, 2);
  const Shape &a = ctx.in_shape(0), &b = ctx.in_shape(1);
  const std::size_t ta = ctx.node().attr("transA", std::int64_t{0}) != 0 ? 1 : 0;
  const std::size_t tb = ctx.node().attr("transB", std::int64_t{0}) != 0 ? 1 : 0;
  const Dim rows = a.ranked ? a.dims[ta] : Dim{};
  const Dim columns = b.ranked ? b.dims[1 - tb] : Dim{};
  if (a.ranked && b.ranked) unify(ctx, a.dims[1 - ta], b.dims[tb], "inner sizes of A and B");
  const Shape out({rows, columns});
  if (ctx.has_input(2)) {
    const Shape both = broadcast(ctx, out, ctx.in_shape(2));
    if (both.ranked && both.rank() != 2)
      ctx.bad("C " + to_string(ctx.in_shape(2)) + " does not broadcast to the product");
  }
  ctx.set_out(0, common_dtype(ctx, 0, ctx.inputs()), out);
}

void conv(InferContext& ctx) {
  if (ctx.in_shape(1).ranked) need_bias(ctx, 2, ctx.in_shape(1).dims[0]);
  ctx.set_out(0, common_dtype(ctx, 0, ctx.inputs()), conv_shape(ctx, ctx.in_shape(0), ctx.in_shape(1)));
}

void conv_transpose(InferContext& ctx) {
  const Shape out = conv_transpose_shape(ctx, ctx.in_shape(0), ctx.in_shape(1));
  if (out.ranked) need_bias(ctx, 2, out.dims[1]);
  ctx.set_out(0, common_dtype(ctx, 0, ctx.inputs()), out);
}

void pool(InferContext& ctx) {
  need_rank_at_least(ctx, 0, 3);
  Shape out = ctx.in_shape(0);
  const Window window = read_window(ctx.node(), {});
  if (window.kernel.empty()) ctx.bad("attribute kernel_shape is missing");
  if (out.ranked) {
    if (static_cast<int>(window.kernel.size()) != out.rank() - 2)
      ctx.bad("attribute kernel_shape does not fit " + to_string(out));
    for (int i = 0; i < window.axes(); ++i) {
      Dim& dim = out.dims[static_cast<std::size_t>(i) + 2];
      dim = window_size(ctx, window, i, dim);
    }
  }
  ctx.set_out(0, ctx.in_dtype(0), out);
  ctx.set_out(1, DType::kI64, out);  // MaxPool's indices
}

void global_pool(InferContext& ctx) {
  need_rank_at_least(ctx, 0, 2);
  Shape out = ctx.in_shape(0);
  for (std::size_t i = 2; i < out.dims.size(); ++i) out.dims[i] = Dim::of(1);
  ctx.set_out(0, ctx.in_dtype(0), out);
}

// Scale, bias (and statistics) are [channels].
void channel_params(InferContext& ctx) {
  need_rank_at_least(ctx, 0, 2);
  for (int i = 1; i < ctx.inputs(); ++i) {
    if (!ctx.has_input(i)) continue;
    need_rank(ctx, i, 1);
    if (ctx.in_shape(0).ranked && ctx.in_shape(i).ranked)
      unify(ctx, ctx.in_shape(0).dims[1], ctx.in_shape(i).dims[0], "channels of the data and of a parameter");
  }
  same_as_input(ctx);
}

void group_norm(InferContext& ctx) {
  const std::int64_t groups = ctx.node().attr("num_groups", std::int64_t{1});
  if (groups < 1) ctx.bad(fmt::format("attribute num_groups is {}", groups));
  channel_params(ctx);
  const Shape& in = ctx.in_shape(0);
  if (in.ranked && in.dims[1].known() && in.dims[1].value % groups != 0)
    ctx.bad(fmt::format("{} channels in {} groups", in.dims[1].value, groups));
}

void batch_norm(InferContext& ctx) {
  channel_params(ctx);
  if (ctx.node().attr("training_mode", std::int64_t{0}) == 0) {
    if (ctx.wants_output(1) || ctx.wants_output(2)) ctx.bad("statistics are outputs only in training mode");
    return;
  }
  ctx.set_out(1, ctx.in_dtype(3), ctx.in_shape(3));
  ctx.set_out(2, ctx.in_dtype(4), ctx.in_shape(4));
}

void layer_norm(InferContext& ctx) {
  Shape kept = ctx.in_shape(0);
  if (kept.ranked) {
    if (kept.rank() == 0) ctx.bad("the data is a scalar");
    const int axis = checked_axis(ctx, ctx.node().attr("axis", std::int64_t{-1}), kept.rank());
    for (std::size_t i = static_cast<std::size_t>(axis); i < kept.dims.size(); ++i) kept.dims[i] = Dim::of(1);
    for (int i = 1; i < ctx.inputs(); ++i)
      if (ctx.has_input(i)) broadcast(ctx, ctx.in_shape(0), ctx.in_shape(i));
  }
  same_as_input(ctx);
  const DType statistics = dtype_attr(ctx, "stash_type", DType::kF32);
  ctx.set_out(1, statistics, kept);
  ctx.set_out(2, statistics, kept);
}

void resize(InferContext& ctx) {
  const Shape& data = ctx.in_shape(0);
  const DType type = ctx.in_dtype(0);
  if (!data.ranked) return ctx.set_out(0, type, {});
  Shape out = data;
  std::vector<std::int64_t> axes = ctx.node().attr_ints("axes");
  if (axes.empty())
    for (int i = 0; i < data.rank(); ++i) axes.push_back(i);
  checked_axes(ctx, axes, data.rank());
  const auto dim_of = [&](std::size_t i) -> Dim& {
    return out.dims[static_cast<std::size_t>(checked_axis(ctx, axes[i], data.rank()))];
  };
  std::vector<SymInt> sizes;
  if (ctx.has_input(3)) {
    const bool known = ctx.in_ints(3, sizes);
    if (known && sizes.size() != axes.size())
      ctx.bad(fmt::format("{} sizes for {} axes", sizes.size(), axes.size()));
    const bool stretch = ctx.node().attr("keep_aspect_ratio_policy", "stretch") == "stretch";
    double ratio = 0;
    const bool larger = ctx.node().attr("keep_aspect_ratio_policy", "stretch") == "not_smaller";
    bool numbers = known;
    for (std::size_t i = 0; i < axes.size() && !stretch && numbers; ++i) {
      numbers = sizes[i].known && dim_of(i).known() && dim_of(i).value > 0;
      if (!numbers) break;
      const double own = static_cast<double>(sizes[i].value) / static_cast<double>(dim_of(i).value);
      ratio = i == 0 ? own : larger ? std::max(ratio, own) : std::min(ratio, own);
    }
    for (std::size_t i = 0; i < axes.size(); ++i) {
      Dim& dim = dim_of(i);
      if (stretch) {
        if (known && sizes[i].known && sizes[i].value < 0) ctx.bad("a size is negative");
        dim = known ? sizes[i].dim() : Dim{};
      } else {
        const double size = ratio * static_cast<double>(dim.value);
        if (numbers && !(size >= 0 && size < 1e15)) ctx.bad("a size is negative or too large");
        dim = numbers ? Dim::of(std::llround(size)) : Dim{};
      }
    }
  } else {
    const Tensor* scales = ctx.in_value(2);
    if (scales != nullptr &&
        (scales->dtype() != DType::kF32 || scales->size() != static_cast<std::int64_t>(axes.size())))
      ctx.bad("scales do not fit the axes");
    for (std::size_t i = 0; i < axes.size(); ++i) {
      Dim& dim = dim_of(i);
      if (scales != nullptr && scales->as<float>()[i] == 1.0F) continue;
      if (scales == nullptr || !dim.known()) {
        dim = Dim{};
        continue;
      }
      const double size =
          std::floor(static_cast<double>(dim.value) * static_cast<double>(scales->as<float>()[i]));
      if (!(size >= 0 && size < 1e15)) ctx.bad("a scale is negative, too large or not a number");
      dim = Dim::of(static_cast<std::int64_t>(size));
    }
  }
  for (std::size_t i = 0; i < out.dims.size(); ++i) {
    const Dim &from = data.dims[i], &to = out.dims[i];
    if (from.known() && from.value == 0 && to.known() && to.value > 0)
      ctx.bad(fmt::format("axis {} has no elements to make {} of", i, to.value));
  }
  ctx.set_out(0, type, out);
}

// [batch, heads, seq, size] or [batch, seq, heads * size] with num_heads.
void rotary(InferContext& ctx) {
  const Shape& x = ctx.in_shape(0);
  if (x.ranked && x.rank() != 3 && x.rank() != 4) ctx.bad("needs rank 3 or 4, has " + to_string(x));
  const std::int64_t heads = ctx.node().attr("num_heads", std::int64_t{0});
  if (x.rank() == 3 &&
      (heads < 0 || (x.dims[2].known() && x.dims[2].value % std::max<std::int64_t>(heads, 1) != 0)))
    ctx.bad(fmt::format("a width of {} in {} heads", to_string(x.dims[2]), heads));
  same_as_input(ctx);
}

// X [seq, batch, in] (layout 1: [batch, seq, in]), W [directions, gates * hidden, in].
void recurrent(InferContext& ctx) {
  need_rank(ctx, 0, 3);
  const Shape& x = ctx.in_shape(0);
  const Shape& w = ctx.in_shape(1);
  const Shape& r = ctx.in_shape(2);
  const DType type = ctx.in_dtype(0);
  const std::int64_t declared = ctx.node().attr("hidden_size", std::int64_t{-1});
  Dim hidden = declared > 0 ? Dim::of(declared) : Dim{};
  if (!hidden.known() && r.rank() == 3) hidden = r.dims[2];
  Dim directions =
      w.rank() == 3 ? w.dims[0] : Dim::of(ctx.node().attr("direction", "forward") == "bidirectional" ? 2 : 1);
  const bool batch_first = ctx.node().attr("layout", std::int64_t{0}) != 0;
  const Dim seq = x.ranked ? x.dims[batch_first ? 1 : 0] : Dim{};
  const Dim batch = x.ranked ? x.dims[batch_first ? 0 : 1] : Dim{};
  const Shape last = batch_first ? Shape({batch, directions, hidden}) : Shape({directions, batch, hidden});
  ctx.set_out(
      0, type,
      batch_first ? Shape({batch, seq, directions, hidden}) : Shape({seq, directions, batch, hidden}));
  ctx.set_out(1, type, last);
  ctx.set_out(2, type, last);
}

// Q, K, V either [batch, heads, seq, size] or [batch, seq, heads * size] with q_num_heads, kv_num_heads.
void attention(InferContext& ctx) {
  const Shape &q = ctx.in_shape(0), &k = ctx.in_shape(1), &v = ctx.in_shape(2);
  const DType type = ctx.in_dtype(0);
  if (!q.ranked || !k.ranked || !v.ranked) return ctx.set_out(0, type, {});
  if ((q.rank() != 3 && q.rank() != 4) || k.rank() != q.rank() || v.rank() != q.rank())
    ctx.bad("Q, K and V must all have rank 3 or all have rank 4");
  const std::int64_t q_heads = ctx.node().attr("q_num_heads", std::int64_t{0});
  const std::int64_t kv_heads = ctx.node().attr("kv_num_heads", std::int64_t{0});
  const bool flat = q.rank() == 3;
  if (flat && (q_heads < 1 || kv_heads < 1)) ctx.bad("rank 3 needs q_num_heads and kv_num_heads");
  const auto part = [&](const Dim& width, std::int64_t heads) {
    if (!width.known()) return Dim{};
    if (width.value % heads != 0) ctx.bad(fmt::format("a width of {} in {} heads", width.value, heads));
    return Dim::of(width.value / heads);
  };
  const Dim k_size = flat ? part(k.dims[2], kv_heads) : k.dims[3];
  const Dim v_size = flat ? part(v.dims[2], kv_heads) : v.dims[3];
  const Dim kv_head_dim = flat ? Dim::of(kv_heads) : k.dims[1];
  const Dim q_head_dim = flat ? Dim::of(q_heads) : q.dims[1];
  const Dim q_seq = q.dims[flat ? 1 : 2];
  Dim total = k.dims[flat ? 1 : 2];
  if (ctx.has_input(4)) {
    const Shape& past = ctx.in_shape(4);
    const Dim before = past.rank() == 4 ? past.dims[2] : Dim{};
    if (before.known() && total.known()) {
      total = Dim::of(before.value + total.value);
    } else if (!(before.known() && before.value == 0)) {
      total = Dim{};
    }
  }
  if (flat) {
    ctx.set_out(0, type, Shape({q.dims[0], q_seq, product(Dim::of(q_heads), v_size)}));
  } else {
    ctx.set_out(0, type, Shape({q.dims[0], q_head_dim, q_seq, v_size}));
  }
  ctx.set_out(1, ctx.in_dtype(1), Shape({q.dims[0], kv_head_dim, total, k_size}));
  ctx.set_out(2, ctx.in_dtype(2), Shape({q.dims[0], kv_head_dim, total, v_size}));
  ctx.set_out(3, type, Shape({q.dims[0], q_head_dim, q_seq, total}));
}

// [batch, seq, heads * size], and a state [batch, key heads, key size, value size].
void linear_attention(InferContext& ctx) {
  for (const int i : {0, 1, 2}) need_rank(ctx, i, 3);
  const std::int64_t q_heads = ctx.node().attr("q_num_heads", std::int64_t{0}),
                     heads = ctx.node().attr("kv_num_heads", std::int64_t{0});
  if (heads < 1 || q_heads < 1 || q_heads % heads != 0)
    ctx.bad(fmt::format("{} query heads, {} key heads", q_heads, heads));
  const auto part = [&](int i, std::int64_t count) {
    const Shape& shape = ctx.in_shape(i);
    if (!shape.ranked || !shape.dims[2].known()) return Dim{};
    if (shape.dims[2].value % count != 0)
      ctx.bad(fmt::format("a width of {} in {} heads", shape.dims[2].value, count));
    return Dim::of(shape.dims[2].value / count);
  };
  const Shape& q = ctx.in_shape(0);
  const Dim batch = q.ranked ? q.dims[0] : Dim{}, key = part(0, q_heads), value = part(2, heads);
  ctx.set_out(0, ctx.in_dtype(0),
              Shape({batch, q.ranked ? q.dims[1] : Dim{}, product(Dim::of(q_heads), value)}));
  ctx.set_out(1, ctx.in_dtype(ctx.has_input(3) ? 3 : 0), Shape({batch, Dim::of(heads), key, value}));
}

void causal_conv(InferContext& ctx) {
  need_rank(ctx, 0, 3);
  need_rank(ctx, 1, 3);
  const Shape &x = ctx.in_shape(0), &w = ctx.in_shape(1);
  const DType type = common_dtype(ctx, 0, ctx.inputs());
  Dim kept;
  if (w.ranked && w.dims[2].known()) {
    if (w.dims[2].value < 1) ctx.bad("a kernel of no places");
    kept = Dim::of(w.dims[2].value - 1);
  }
  ctx.set_out(0, type, x);
  ctx.set_out(1, type, Shape({x.ranked ? x.dims[0] : Dim{}, x.ranked ? x.dims[1] : Dim{}, kept}));
}

void det(InferContext& ctx) {
  need_rank_at_least(ctx, 0, 2);
  Shape out = ctx.in_shape(0);
  if (out.ranked) {
    unify(ctx, out.dims[out.dims.size() - 2], out.dims.back(), "sides of a square matrix");
    out.dims.resize(out.dims.size() - 2);
  }
  ctx.set_out(0, ctx.in_dtype(0), out);
}

void einsum(InferContext& ctx) {
  const DType type = common_dtype(ctx, 0, ctx.inputs());
  std::vector<int> ranks;
  for (int i = 0; i < ctx.inputs(); ++i) {
    if (!ctx.in_shape(i).ranked) return ctx.set_out(0, type, {});
    ranks.push_back(ctx.in_shape(i).rank());
  }
  const EinsumLabels labels = parse_einsum(ctx.node().attr("equation", ""), ranks);
  std::vector<Dim> sizes(static_cast<std::size_t>(labels.count), Dim::of(1));
  for (int i = 0; i < ctx.inputs(); ++i)
    for (std::size_t a = 0; a < labels.in[static_cast<std::size_t>(i)].size(); ++a) {
      Dim& size = sizes[static_cast<std::size_t>(labels.in[static_cast<std::size_t>(i)][a])];
      size = broadcast(ctx, Shape({size}), Shape({ctx.in_shape(i).dims[a]})).dims[0];
    }
  sizes.resize(labels.out.size());
  ctx.set_out(0, type, Shape(std::move(sizes)));
}

constexpr OpSchema kSchemas[] = {
    {"", "Attention", 3, 7, 1, 4, attention},
    {"", "AveragePool", 1, 1, 1, 1, pool},
    {"", "BatchNormalization", 5, 5, 1, 3, batch_norm},
    {"", "CausalConvWithState", 2, 4, 1, 2, causal_conv},
    {"", "Conv", 2, 3, 1, 1, conv},
    {"", "ConvTranspose", 2, 3, 1, 1, conv_transpose},
    {"", "Det", 1, 1, 1, 1, det},
    {"", "Einsum", 1, -1, 1, 1, einsum},
    {"", "GRU", 3, 6, 0, 2, recurrent},
    {"", "Gemm", 2, 3, 1, 1, gemm},
    {"", "GlobalAveragePool", 1, 1, 1, 1, global_pool},
    {"", "GlobalLpPool", 1, 1, 1, 1, global_pool},
    {"", "GlobalMaxPool", 1, 1, 1, 1, global_pool},
    {"", "GroupNormalization", 3, 3, 1, 1, group_norm},
    {"", "InstanceNormalization", 3, 3, 1, 1, channel_params},
    {"", "LRN", 1, 1, 1, 1, same},
    {"", "LSTM", 3, 8, 0, 3, recurrent},
    {"", "LayerNormalization", 2, 3, 1, 3, layer_norm},
    {"", "LinearAttention", 3, 6, 1, 2, linear_attention},
    {"", "LpPool", 1, 1, 1, 1, pool},
    {"", "MatMul", 2, 2, 1, 1, matmul},
    {"", "MaxPool", 1, 1, 1, 2, pool},
    {"", "RMSNormalization", 2, 2, 1, 1, layer_norm},
    {"", "RNN", 3, 6, 0, 2, recurrent},
    {"", "Resize", 1, 4, 1, 1, resize},
    {"", "RotaryEmbedding", 3, 4, 1, 1, rotary},
};

}  // namespace

std::span<const OpSchema> nn_schemas() { return kSchemas; }

}  // namespace pare
