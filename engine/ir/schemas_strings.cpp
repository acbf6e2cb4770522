// Operators on strings.
#include <algorithm>

#include "engine/ir/infer_rules.h"
#include "engine/ir/schema_groups.h"

namespace pare {
namespace {

void concat(InferContext& ctx) { ctx.set_out(0, DType::kString, broadcast_inputs(ctx, 0, 2)); }

void split(InferContext& ctx) {
  Shape pieces = ctx.in_shape(0);
  if (pieces.ranked) pieces.dims.emplace_back();
  ctx.set_out(0, DType::kString, pieces);
  ctx.set_out(1, DType::kI64, ctx.in_shape(0));
}

void normalizer(InferContext& ctx) {
  Shape shape = ctx.in_shape(0);
  if (shape.ranked && (shape.rank() < 1 || shape.rank() > 2))
    ctx.bad("the input " + to_string(shape) + " is neither [C] nor [1, C]");
  if (shape.ranked) shape.dims.back() = Dim{};
  ctx.set_out(0, DType::kString, shape);
}

void full_match(InferContext& ctx) { ctx.set_out(0, DType::kBool, ctx.in_shape(0)); }

void tfidf(InferContext& ctx) {
  std::int64_t width = 0;
  for (const std::int64_t column : ctx.node().attr_ints("ngram_indexes")) {
    if (column < 0 || column >= INT32_MAX) ctx.bad(fmt::format("attribute ngram_indexes holds {}", column));
    width = std::max(width, column + 1);
  }
  Shape shape = ctx.in_shape(0);
  if (shape.ranked && shape.rank() > 2)
    ctx.bad("the input " + to_string(shape) + " is neither [C] nor [N, C]");
  if (shape.ranked && shape.rank() == 0) shape.dims.emplace_back();
  if (shape.ranked) shape.dims.back() = Dim::of(width);
  ctx.set_out(0, DType::kF32, shape);
}

constexpr OpSchema kSchemas[] = {
    {"", "RegexFullMatch", 1, 1, 1, 1, full_match},   {"", "StringConcat", 2, 2, 1, 1, concat},
    {"", "StringNormalizer", 1, 1, 1, 1, normalizer}, {"", "StringSplit", 1, 1, 1, 2, split},
    {"", "TfIdfVectorizer", 1, 1, 1, 1, tfidf},
};

}  // namespace

std::span<const OpSchema> string_schemas() { return kSchemas; }

}  // namespace pare
