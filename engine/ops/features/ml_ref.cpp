#include "engine/ops/features/ml.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "engine/base/error.h"
#include "engine/numeric/convert.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

using Ints = std::vector<std::int64_t>;
using Floats = std::vector<float>;
using Words = std::vector<std::string>;
using ml::Rows;

Words attr_words(const Node& node, const char* key) {
  const auto found = node.attrs.find(key);
  const auto* words = found == node.attrs.end() ? nullptr : std::get_if<Words>(&found->second);
  return words == nullptr ? Words() : *words;
}

// Writes f(i), a double, to every element of an output of numbers.
template <typename F>
void fill(const TensorView& out, const F& f) {
  std::vector<double> wide(static_cast<std::size_t>(out.size()));
  for (std::int64_t i = 0; i < out.size(); ++i) wide[static_cast<std::size_t>(i)] = f(i);
  convert({DType::kF64, out.dims, wide.data()}, out);
}

void copy_element(const TensorView& from, std::int64_t i, const TensorView& to, std::int64_t k) {
  if (from.dtype == DType::kString) {
    to.mut<std::string>()[k] = from.as<std::string>()[i];
    return;
  }
  const std::int64_t bytes = element_bytes(from.dtype);
  std::memcpy(to.mut<char>() + k * bytes, from.as<char>() + i * bytes, static_cast<std::size_t>(bytes));
}

std::string feature_reason(const OpCall& call) {
  if (element_bytes(call.input(0).dtype) == 0 && call.input(0).dtype != DType::kString)
    return "elements are no whole bytes";
  return type_reason(call, 1, {DType::kI64});
}

void run_feature(const OpCall& call) {
  const TensorView& x = call.in[0];
  const Ints columns = ints_of(call.in[1]);
  const std::int64_t width = x.dims.empty() ? 1 : x.dims.back(), rows = width == 0 ? 0 : x.size() / width;
  const auto count = static_cast<std::int64_t>(columns.size());
  for (const std::int64_t c : columns)
    if (c < 0 || c >= width) fail(ErrorCode::kBadFile, "ArrayFeatureExtractor: column {} of {}", c, width);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t k = 0; k < count; ++k)
      copy_element(x, r * width + columns[static_cast<std::size_t>(k)], call.out[0], r * count + k);
}

std::string number_reason(const OpCall& call) {
  return type_reason(call, 0, {DType::kF32, DType::kF64, DType::kI64, DType::kI32});
}

void run_binarizer(const OpCall& call) {
  const Rows x(call.in[0]);
  const double threshold = static_cast<double>(call.node->attr("threshold", 0.0F));
  fill(call.out[0], [&](std::int64_t i) { return x.x[static_cast<std::size_t>(i)] > threshold ? 1.0 : 0.0; });
}

void run_scaler(const OpCall& call) {
  const Rows x(call.in[0]);
  const Floats offset = call.node->attr_floats("offset"), scale = call.node->attr_floats("scale");
  for (const Floats* list : {&offset, &scale})
    if (list->size() > 1 && static_cast<std::int64_t>(list->size()) != x.columns)
      fail(ErrorCode::kBadFile, "Scaler: {} values for {} columns", list->size(), x.columns);
  const auto of = [&](const Floats& list, std::int64_t i, double otherwise) {
    return list.empty()
               ? otherwise
               : static_cast<double>(list[list.size() == 1 ? 0 : static_cast<std::size_t>(i % x.columns)]);
  };
  fill(call.out[0], [&](std::int64_t i) {
    return (x.x[static_cast<std::size_t>(i)] - of(offset, i, 0)) * of(scale, i, 1);
  });
}

void run_normalizer(const OpCall& call) {
  Rows x(call.in[0]);
  const std::string norm = call.node->attr("norm", "MAX");
  for (std::int64_t r = 0; r < x.rows; ++r) {
    double* const row = x.x.data() + r * x.columns;
    double size = norm == "MAX" ? -INFINITY : 0;
    for (std::int64_t c = 0; c < x.columns; ++c)
      size = norm == "MAX" ? std::max(size, row[c])
                           : size + (norm == "L1" ? std::fabs(row[c]) : row[c] * row[c]);
    if (norm == "L2") size = std::sqrt(size);
    for (std::int64_t c = 0; c < x.columns; ++c)
      if (size != 0) row[c] /= size;
  }
  fill(call.out[0], [&](std::int64_t i) { return x.x[static_cast<std::size_t>(i)]; });
}

void run_imputer(const OpCall& call) {
  const TensorView& x = call.in[0];
  const Rows rows(x);
  std::vector<double> values;
  double replaced = 0;
  if (is_integer(x.dtype)) {
    for (const std::int64_t v : call.node->attr_ints("imputed_value_int64s"))
      values.push_back(static_cast<double>(v));
    replaced = static_cast<double>(call.node->attr("replaced_value_int64", std::int64_t{0}));
  } else {
    for (const float v : call.node->attr_floats("imputed_value_floats"))
      values.push_back(static_cast<double>(v));
    replaced = static_cast<double>(call.node->attr("replaced_value_float", 0.0F));
  }
  if (values.empty() || (values.size() > 1 && static_cast<std::int64_t>(values.size()) != rows.columns))
    fail(ErrorCode::kBadFile, "Imputer: {} values for {} columns", values.size(), rows.columns);
  fill(call.out[0], [&](std::int64_t i) {
    const double v = rows.x[static_cast<std::size_t>(i)];
    const bool gone = std::isnan(replaced) ? std::isnan(v) : v == replaced;
    return gone ? values[values.size() == 1 ? 0 : static_cast<std::size_t>(i % rows.columns)] : v;
  });
}

// --- tables

// A key of any type as bytes: strings as they are, whole numbers as int64, others as double (one NaN, one
// zero).
std::string key_of(const TensorView& view, std::int64_t i) {
  if (view.dtype == DType::kString) return view.as<std::string>()[i];
  std::string key(8, '\0');
  const std::int64_t bytes = element_bytes(view.dtype);
  const TensorView one{view.dtype, {1}, const_cast<char*>(view.as<char>()) + i * bytes};
  if (is_integer(view.dtype)) {
    convert(one, {DType::kI64, {1}, key.data()});
  } else {
    double value = 0;
    convert(one, {DType::kF64, {1}, &value});
    if (std::isnan(value)) value = NAN;
    if (value == 0) value = 0;
    std::memcpy(key.data(), &value, 8);
  }
  return key;
}

Tensor words_tensor(const Words& words) {
  Tensor t = Tensor::allocate(DType::kString, {static_cast<std::int64_t>(words.size())});
  std::copy(words.begin(), words.end(), t.mut<std::string>());
  return t;
}

// keys_X or values_X, whichever X there is.
Tensor side_of(const Node& node, const std::string& side) {
  if (const Tensor* tensor = node.attr_tensor(side + "_tensor")) return *tensor;
  if (node.has_attr(side + "_strings")) return words_tensor(attr_words(node, (side + "_strings").c_str()));
  if (node.has_attr(side + "_int64s")) return Tensor::ints(node.attr_ints(side + "_int64s"));
  const Floats values = node.attr_floats(side + "_floats");
  return Tensor::from(DType::kF32, {static_cast<std::int64_t>(values.size())}, values);
}

// What stands for keys that are in no table, of a type.
Tensor default_of(const Node& node, DType type) {
  if (const Tensor* tensor = node.attr_tensor("default_tensor")) return *tensor;
  if (type == DType::kString) return words_tensor({node.attr("default_string", "_Unused")});
  if (type == DType::kF32) return Tensor::from(type, {1}, Floats{node.attr("default_float", -0.0F)});
  const Tensor number = Tensor::ints({node.attr("default_int64", std::int64_t{-1})});
  if (type == DType::kI64) return number;
  Tensor out = Tensor::allocate(type, {1});
  convert(number.view(), {type, {1}, out.mut<std::byte>()});
  return out;
}

void run_table(const OpCall& call) {
  const Node& node = *call.node;
  const TensorView &x = call.in[0], &y = call.out[0];
  Tensor keys, values;
  if (node.op == "CategoryMapper" || node.has_attr("classes_strings")) {
    const bool mapper = node.op == "CategoryMapper";
    const Words words = attr_words(node, mapper ? "cats_strings" : "classes_strings");
    Ints numbers = node.attr_ints("cats_int64s");
    for (std::size_t i = 0; !mapper && i < words.size(); ++i) numbers.push_back(static_cast<std::int64_t>(i));
    keys = words_tensor(words), values = Tensor::ints(numbers);
    if (x.dtype != DType::kString) std::swap(keys, values);
  } else {
    keys = side_of(node, "keys"), values = side_of(node, "values");
  }
  const Tensor otherwise = default_of(node, y.dtype);
  if (keys.size() != values.size() || values.dtype() != y.dtype || otherwise.dtype() != y.dtype ||
      otherwise.size() != 1)
    fail(ErrorCode::kBadFile, "{}: {} keys, {} values", node.op, keys.size(), values.size());
  if ((keys.dtype() == DType::kString) != (x.dtype == DType::kString) ||
      is_integer(keys.dtype()) != is_integer(x.dtype))
    fail(ErrorCode::kBadFile, "{}: keys are {}, the input {}", node.op, name(keys.dtype()), name(x.dtype));
  std::unordered_map<std::string, std::int64_t> table;
  for (std::int64_t i = 0; i < keys.size(); ++i) table.emplace(key_of(keys.view(), i), i);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const auto found = table.find(key_of(x, i));
    copy_element(found == table.end() ? otherwise.view() : values.view(),
                 found == table.end() ? 0 : found->second, y, i);
  }
}

std::string table_reason(const OpCall& call) {
  const DType type = call.input(0).dtype;
  return type == DType::kString || element_bytes(type) > 0 ? "" : "keys of type " + std::string(name(type));
}

void run_one_hot(const OpCall& call) {
  const Node& node = *call.node;
  const TensorView& x = call.in[0];
  const bool strings = x.dtype == DType::kString;
  const Tensor categories =
      strings ? words_tensor(attr_words(node, "cats_strings")) : Tensor::ints(node.attr_ints("cats_int64s"));
  const bool zeros = node.attr("zeros", std::int64_t{1}) != 0;
  std::unordered_map<std::string, std::int64_t> table;
  for (std::int64_t i = 0; i < categories.size(); ++i) table.emplace(key_of(categories.view(), i), i);
  Tensor whole = Tensor::allocate(DType::kI64, x.dims);
  if (!strings) convert(x, {DType::kI64, x.dims, whole.mut<std::int64_t>()});
  auto* const y = call.out[0].mut<float>();
  std::fill_n(y, call.out[0].size(), 0.0F);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const auto found = table.find(key_of(strings ? x : whole.view(), i));
    if (found != table.end())
      y[i * categories.size() + found->second] = 1;
    else if (!zeros)
      fail(ErrorCode::kBadFile, "OneHotEncoder: element {} is of no category", i);
  }
}

std::string one_hot_reason(const OpCall& call) {
  return type_reason(call, 0, {DType::kString, DType::kI64, DType::kI32, DType::kF32, DType::kF64});
}

void run_vectorizer(const OpCall& call) {
  const std::int64_t width = call.out[0].dims[1];
  auto* const y = call.out[0].mut<float>();
  std::int64_t at = 0;
  for (const TensorView& view : call.in) {
    const Rows part(view);
    if (part.rows != call.out[0].dims[0] || at + part.columns > width)
      fail(ErrorCode::kBadFile, "FeatureVectorizer: an input {} beside {} rows", to_string(view.dims),
           call.out[0].dims[0]);
    for (std::int64_t r = 0; r < part.rows; ++r)
      for (std::int64_t c = 0; c < part.columns; ++c)
        y[r * width + at + c] = static_cast<float>(part.row(r)[c]);
    at += part.columns;
  }
}

std::string vectorizer_reason(const OpCall& call) {
  for (int i = 0; i < static_cast<int>(call.in.size()); ++i) {
    const std::size_t rank = call.input(i).dims.size();
    if (rank != 1 && rank != 2) return "an input is neither [C] nor [N, C]";
    std::string reason = type_reason(call, i, {DType::kF32, DType::kF64, DType::kI64, DType::kI32});
    if (!reason.empty()) return reason;
  }
  return {};
}

// --- linear models

std::vector<double> linear(const Node& node, const Rows& x, std::int64_t r, std::int64_t outputs) {
  const Floats weights = node.attr_floats("coefficients"), bias = node.attr_floats("intercepts");
  if (static_cast<std::int64_t>(weights.size()) != outputs * x.columns ||
      (!bias.empty() && static_cast<std::int64_t>(bias.size()) != outputs))
    fail(ErrorCode::kBadFile, "{}: {} coefficients and {} intercepts for {} outputs of {} columns", node.op,
         weights.size(), bias.size(), outputs, x.columns);
  std::vector<double> scores;
  for (std::int64_t k = 0; k < outputs; ++k) {
    double sum = bias.empty() ? 0 : static_cast<double>(bias[static_cast<std::size_t>(k)]);
    for (std::int64_t c = 0; c < x.columns; ++c)
      sum += x.row(r)[c] * static_cast<double>(weights[static_cast<std::size_t>(k * x.columns + c)]);
    scores.push_back(sum);
  }
  return scores;
}

void run_regressor(const OpCall& call) {
  const Rows x(call.in[0]);
  const std::int64_t targets = call.node->attr("targets", std::int64_t{1});
  const std::string transform = call.node->attr("post_transform", "NONE");
  for (std::int64_t r = 0; r < x.rows; ++r) {
    std::vector<double> scores = linear(*call.node, x, r, targets);
    ml::post_transform(scores, transform);
    std::transform(scores.begin(), scores.end(), call.out[0].mut<float>() + r * targets,
                   [](double v) { return static_cast<float>(v); });
  }
}

void run_classifier(const OpCall& call) {
  const Rows x(call.in[0]);
  const auto outputs = static_cast<std::int64_t>(call.node->attr_floats("coefficients").size()) /
                       std::max<std::int64_t>(1, x.columns);
  const std::string transform = call.node->attr("post_transform", "NONE");
  const std::int64_t width = call.out[1].dims[1];
  for (std::int64_t r = 0; r < x.rows; ++r) {
    std::vector<double> scores = linear(*call.node, x, r, outputs);
    std::size_t label = 0;
    if (outputs == 1 && width == 2) {
      label = ml::binary_scores(scores, true, transform) ? 1 : 0;
    } else {
      label = static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
      ml::post_transform(scores, transform);
    }
    ml::write_label(call, r, label);
    if (static_cast<std::int64_t>(scores.size()) != width)
      fail(ErrorCode::kBadFile, "LinearClassifier: {} scores for {} labels", scores.size(), width);
    std::transform(scores.begin(), scores.end(), call.out[1].mut<float>() + r * width,
                   [](double v) { return static_cast<float>(v); });
  }
}

}  // namespace

void add_ml_references(Registry& registry) {
  Kernel kernel;
  kernel.domain = ml::kDomain;
  const auto add = [&](const char* op, std::string (*reason)(const OpCall&), void (*run)(const OpCall&)) {
    kernel.op = op;
    kernel.name = kernel_name(std::string(ml::kDomain) + "." + op, "reference");
    kernel.why_not = reason;
    kernel.run = run;
    registry.add(kernel);
  };
  add("ArrayFeatureExtractor", feature_reason, run_feature);
  add("Binarizer", number_reason, run_binarizer);
  add("Scaler", ml::rows_reason, run_scaler);
  add("Normalizer", ml::rows_reason, run_normalizer);
  add("Imputer", ml::rows_reason, run_imputer);
  add("LabelEncoder", table_reason, run_table);
  add("CategoryMapper", table_reason, run_table);
  add("OneHotEncoder", one_hot_reason, run_one_hot);
  add("FeatureVectorizer", vectorizer_reason, run_vectorizer);
  add("LinearRegressor", ml::rows_reason, run_regressor);
  add("LinearClassifier", ml::rows_reason, run_classifier);
}

}  // namespace pare
