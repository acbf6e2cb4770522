// Operators of ai.onnx.ml.
#include <algorithm>

#include "engine/ir/infer_rules.h"
#include "engine/ir/schema_groups.h"

namespace pare {
namespace {

using Words = std::vector<std::string>;

std::size_t words(const Node& node, const char* key) {
  const auto found = node.attrs.find(key);
  const auto* list = found == node.attrs.end() ? nullptr : std::get_if<Words>(&found->second);
  return list == nullptr ? 0 : list->size();
}

void same(InferContext& ctx) { same_as_input(ctx); }
void same_float(InferContext& ctx) { ctx.set_out(0, DType::kF32, ctx.in_shape(0)); }

// [C] is one row.
Dim rows(InferContext& ctx) {
  const Shape& x = ctx.in_shape(0);
  if (!x.ranked) return {};
  if (x.rank() < 1 || x.rank() > 2) ctx.bad("the input " + to_string(x) + " is neither [C] nor [N, C]");
  return x.rank() == 1 ? Dim::of(1) : x.dims[0];
}

void feature(InferContext& ctx) {
  Shape shape = ctx.in_shape(0);
  const Shape& columns = ctx.in_shape(1);
  if (shape.ranked) {
    Dim count = columns.ranked ? Dim::of(1) : Dim{};
    if (columns.ranked)
      for (const Dim& d : columns.dims) count = product(count, d);
    if (shape.rank() < 2) shape = Shape(std::vector<Dim>{Dim::of(1), Dim{}});
    shape.dims.back() = count;
  }
  ctx.set_out(0, ctx.in_dtype(0), shape);
}

void table(InferContext& ctx) {
  const Node& node = ctx.node();
  DType type = DType::kF32;
  if (node.op == "CategoryMapper" || node.has_attr("classes_strings"))
    type = ctx.in_dtype(0) == DType::kUndefined ? DType::kUndefined
           : ctx.in_dtype(0) == DType::kString  ? DType::kI64
                                                : DType::kString;
  else if (const Tensor* values = node.attr_tensor("values_tensor"))
    type = values->dtype();
  else if (node.has_attr("values_strings"))
    type = DType::kString;
  else if (node.has_attr("values_int64s"))
    type = DType::kI64;
  ctx.set_out(0, type, ctx.in_shape(0));
}

void one_hot(InferContext& ctx) {
  Shape shape = ctx.in_shape(0);
  const std::size_t count =
      std::max(words(ctx.node(), "cats_strings"), ctx.node().attr_ints("cats_int64s").size());
  if (shape.ranked) shape.dims.push_back(Dim::of(static_cast<std::int64_t>(count)));
  ctx.set_out(0, DType::kF32, shape);
}

void vectorizer(InferContext& ctx) {
  Dim width = Dim::of(0);
  for (int i = 0; i < ctx.inputs(); ++i) {
    const Shape& x = ctx.in_shape(i);
    if (!x.ranked || x.rank() < 1 || !x.dims.back().known() || !width.known())
      width = Dim{};
    else
      width = Dim::of(width.value + x.dims.back().value);
  }
  ctx.set_out(0, DType::kF32, Shape({rows(ctx), width}));
}

void regressor(InferContext& ctx) {
  const char* const key = ctx.node().op == "LinearRegressor" ? "targets" : "n_targets";
  const std::int64_t targets = ctx.node().attr(key, std::int64_t{1});
  if (targets < 1 || targets > INT32_MAX) ctx.bad(fmt::format("attribute {} is {}", key, targets));
  const bool wide = ctx.node().op == "TreeEnsemble" && ctx.in_dtype(0) == DType::kF64;
  ctx.set_out(0, wide ? DType::kF64 : DType::kF32, Shape({rows(ctx), Dim::of(targets)}));
}

void classifier(InferContext& ctx) {
  const std::size_t strings = words(ctx.node(), "classlabels_strings");
  const std::size_t numbers = std::max(ctx.node().attr_ints("classlabels_int64s").size(),
                                       ctx.node().attr_ints("classlabels_ints").size());
  std::size_t labels = std::max(strings, numbers);
  if (labels == 0) labels = ctx.node().attr_floats("intercepts").size();
  ctx.set_out(0, strings > 0 ? DType::kString : DType::kI64, Shape({rows(ctx)}));
  ctx.set_out(1, DType::kF32, Shape({rows(ctx), Dim::of(static_cast<std::int64_t>(labels))}));
}

constexpr std::string_view kMl = "ai.onnx.ml";
constexpr OpSchema kSchemas[] = {
    {kMl, "ArrayFeatureExtractor", 2, 2, 1, 1, feature},
    {kMl, "Binarizer", 1, 1, 1, 1, same},
    {kMl, "CategoryMapper", 1, 1, 1, 1, table},
    {kMl, "FeatureVectorizer", 1, -1, 1, 1, vectorizer},
    {kMl, "Imputer", 1, 1, 1, 1, same},
    {kMl, "LabelEncoder", 1, 1, 1, 1, table},
    {kMl, "LinearClassifier", 1, 1, 2, 2, classifier},
    {kMl, "LinearRegressor", 1, 1, 1, 1, regressor},
    {kMl, "Normalizer", 1, 1, 1, 1, same_float},
    {kMl, "OneHotEncoder", 1, 1, 1, 1, one_hot},
    {kMl, "Scaler", 1, 1, 1, 1, same_float},
    {kMl, "TreeEnsemble", 1, 1, 1, 1, regressor},
    {kMl, "TreeEnsembleClassifier", 1, 1, 2, 2, classifier},
    {kMl, "TreeEnsembleRegressor", 1, 1, 1, 1, regressor},
};

}  // namespace

std::span<const OpSchema> ml_schemas() { return kSchemas; }

}  // namespace pare
