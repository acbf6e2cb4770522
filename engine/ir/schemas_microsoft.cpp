// Operators of com.microsoft that are kept as they are (graphsurgeon raises the others to standard ones).
#include <algorithm>

#include "engine/ir/infer_rules.h"
#include "engine/ir/schema_groups.h"

namespace pare {
namespace {

void group_query_attention(InferContext& ctx) {
  const std::int64_t heads = ctx.node().attr("num_heads", std::int64_t{0}),
                     kv_heads = ctx.node().attr("kv_num_heads", std::int64_t{0});
  if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0 || heads > INT32_MAX)
    ctx.bad(fmt::format("{} query heads and {} key heads", heads, kv_heads));
  if (!ctx.has_input(5) || !ctx.has_input(6)) ctx.bad("seqlens_k and total_sequence_length are missing");
  need_rank(ctx, 0, 3);
  need_rank(ctx, 5, 1);
  for (const int i : {1, 2})
    if (ctx.has_input(i)) need_rank(ctx, i, 3);
  for (const int i : {3, 4})
    if (ctx.has_input(i)) need_rank(ctx, i, 4);
  for (const int i : {7, 8})
    if (ctx.has_input(i)) need_rank(ctx, i, 2);
  const Shape& query = ctx.in_shape(0);
  const DType type = ctx.in_dtype(0);
  const bool packed = !ctx.has_input(1);
  const std::int64_t parts = packed ? heads + 2 * kv_heads : heads;
  Dim size, hidden, batch, past = Dim::of(0);
  if (query.ranked) {
    batch = query.dims[0];
    if (ctx.in_shape(5).ranked)
      batch = unify(ctx, batch, ctx.in_shape(5).dims[0], "samples of the queries and of seqlens_k");
    if (query.dims[2].known()) {
      if (query.dims[2].value % parts != 0)
        ctx.bad(fmt::format("{} values a token in {} heads", query.dims[2].value, parts));
      size = Dim::of(query.dims[2].value / parts);
      hidden = Dim::of(size.value * heads);
    }
    ctx.set_out(0, type, Shape({batch, query.dims[1], hidden}));
  } else {
    ctx.set_out(0, type, Shape(std::vector<Dim>(3)));
  }
  for (const int i : {1, 2}) {
    if (!ctx.has_input(i) || !ctx.in_shape(i).ranked || !query.ranked) continue;
    unify(ctx, query.dims[0], ctx.in_shape(i).dims[0], "samples of queries and keys");
    unify(ctx, query.dims[1], ctx.in_shape(i).dims[1], "tokens of queries and keys");
    if (size.known())
      unify(ctx, Dim::of(size.value * kv_heads), ctx.in_shape(i).dims[2], "heads and values of a key");
  }
  for (const int i : {3, 4}) {
    if (!ctx.has_input(i)) continue;
    if (!ctx.in_shape(i).ranked) {
      past = Dim{};
      continue;
    }
    past = ctx.in_shape(i).dims[2];
    unify(ctx, batch, ctx.in_shape(i).dims[0], "samples of queries and cache");
    unify(ctx, Dim::of(kv_heads), ctx.in_shape(i).dims[1], "heads of the cache");
    unify(ctx, size, ctx.in_shape(i).dims[3], "size of a head of the cache");
  }
  std::int64_t total = 0;
  Dim cache;
  if (past.known() && known_int(ctx, 6, total)) {
    if (total < 0) ctx.bad(fmt::format("total_sequence_length is {}", total));
    cache = Dim::of(std::max(total, past.value));
  }
  for (const int i : {1, 2}) ctx.set_out(i, type, Shape({batch, Dim::of(kv_heads), cache, size}));
}

constexpr OpSchema kSchemas[] = {
    {"com.microsoft", "GroupQueryAttention", 7, 17, 1, 4, group_query_attention},
};

}  // namespace

std::span<const OpSchema> microsoft_schemas() { return kSchemas; }

}  // namespace pare
