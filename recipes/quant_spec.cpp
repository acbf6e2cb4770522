#include "recipes/quant_spec.h"

#include "engine/base/error.h"
#include "engine/numeric/table.h"

namespace pare {
namespace {

DType format_dtype(const std::string& text) {
  if (text == "none") return DType::kUndefined;
  if (text == "fp8_e5m2") return DType::kE5M2;
  const FormatInfo* info = find_format(text);
  if (info == nullptr)
    throw make_error(ErrorCode::kUnsupported, "this build does not quantize to {}", text)
        .hint("`pare ops --formats` lists the schemes");
  return info->dtype;
}

quant::Granularity granularity(const std::string& text) {
  if (text == "tensor") return quant::Granularity::kTensor;
  if (text == "channel") return quant::Granularity::kChannel;
  if (text == "token") return quant::Granularity::kToken;
  return quant::Granularity::kBlock;
}

void apply(const WeightSpec& w, quant::Format& format) {
  if (!w.format.empty()) format.dtype = format_dtype(w.format);
  if (!w.granularity.empty()) format.granularity = granularity(w.granularity);
  if (w.group_size > 0) {
    format.block = static_cast<int>(w.group_size);
    format.granularity = quant::Granularity::kBlock;
  }
  if (w.symmetric) format.symmetric = *w.symmetric;
}

void apply(const ActivationSpec& a, quant::Format& format) {
  if (!a.format.empty()) format.dtype = format_dtype(a.format);
  if (!a.granularity.empty()) {
    format.granularity = granularity(a.granularity);
    format.dynamic = format.granularity == quant::Granularity::kToken;
  }
  if (a.dynamic) format.dynamic = *a.dynamic;
  if (a.symmetric) {
    format.symmetric = *a.symmetric;
    // The asymmetric form of int8 activations is uint8: what runtimes have kernels for.
    if (!format.symmetric && format.dtype == DType::kI8) format.dtype = DType::kU8;
    if (!format.symmetric && format.dtype == DType::kI16) format.dtype = DType::kU16;
  }
}

bool says(const WeightSpec& w) {
  return !w.format.empty() || !w.granularity.empty() || w.group_size > 0 || w.symmetric.has_value();
}
bool says(const ActivationSpec& a) {
  return !a.format.empty() || !a.granularity.empty() || a.symmetric.has_value() || a.dynamic.has_value();
}

quant::Rule rule_of(const RuleSpec& recipe, const quant::Spec& base) {
  if (!recipe.match.dtype.empty() || !recipe.match.block.empty())
    throw make_error(ErrorCode::kUnsupported, "this build has no rules by {}",
                     recipe.match.dtype.empty() ? "block" : "dtype")
        .at("quantize.rules")
        .hint("match by name, op or tensor");
  quant::Rule rule;
  rule.match.name = recipe.match.name;
  rule.match.op = recipe.match.op;
  rule.match.tensor = recipe.match.tensor;
  rule.quantize = recipe.quantize;
  if (says(recipe.weights)) {
    rule.weights = base.weights;
    apply(recipe.weights, *rule.weights);
  }
  if (says(recipe.activations)) {
    rule.activations = base.activations;
    apply(recipe.activations, *rule.activations);
  }
  if (!recipe.weights.search.empty() || !recipe.activations.calibrator.empty())
    throw make_error(ErrorCode::kUnsupported, "this build has one search and one calibrator for all layers")
        .at("quantize.rules")
        .hint("set them in quantize.weights and quantize.activations");
  return rule;
}

}  // namespace

void check_supported(const Recipe& recipe) {
  if (recipe.quantize) quant_spec(*recipe.quantize);
  if (recipe.export_as.model != "qdq_onnx")
    throw make_error(ErrorCode::kUnsupported, "this build does not write {}", recipe.export_as.model)
        .at("export.model")
        .hint("use qdq_onnx");
  for (const auto& [name, entry] : recipe.datasets)
    if (entry.spec.kind == "text")
      throw make_error(ErrorCode::kUnsupported, "this build does not read data of kind {}", entry.spec.kind)
          .at(fmt::format("datasets.{}.kind", name))
          .hint("npy, npz, hdf5, images or audio");
}

quant::Spec quant_spec(const QuantizeSpec& q) {
  for (const char* later :
       {"int4", "int3", "int2", "nvfp4", "mxfp4", "mxfp8", "nvfp4_w4a4", "mxfp4_w4a4", "mxfp8_w8a8", "w4a8"})
    if (q.scheme == later)
      throw make_error(ErrorCode::kUnsupported, "this build does not quantize by scheme {}", later)
          .at("quantize.scheme")
          .hint("`pare ops --formats` lists what it has");
  quant::Spec spec;
  spec.target = quant::target_from_name(q.target);
  // Without a scheme only what is named is quantized.
  spec.weights.dtype = spec.activations.dtype = DType::kUndefined;
  if (!q.scheme.empty()) {
    const quant::Scheme& scheme = quant::scheme_from_name(q.scheme);
    spec.weights = scheme.weights;
    spec.activations = scheme.activations;
  }
  apply(q.weights, spec.weights);
  apply(q.activations, spec.activations);
  if (q.group_size > 0) {
    spec.weights.block = static_cast<int>(q.group_size);
    spec.weights.granularity = quant::Granularity::kBlock;
  }
  spec.ops = q.ops;
  spec.method = q.method;
  if (q.weights.search == "amax") spec.method = "rtn";
  if (q.weights.search == "mse") spec.method = "search";
  if (!q.ignore.empty()) {
    quant::Rule rule;
    rule.match.name = q.ignore;
    rule.quantize = false;
    spec.rules.push_back(std::move(rule));
  }
  for (const RuleSpec& recipe : q.rules) spec.rules.push_back(rule_of(recipe, spec));
  spec.share = q.share;
  if (q.act_order || q.damp)
    throw make_error(ErrorCode::kUnsupported, "this build has no gptq")
        .at("quantize")
        .hint("leave act_order and damp out");
  quant::check(spec);
  return spec;
}

}  // namespace pare
