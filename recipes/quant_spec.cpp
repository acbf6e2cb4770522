#include "recipes/quant_spec.h"

#include <algorithm>

#include "engine/base/error.h"
#include "quant/placement/target_rules.h"
#include "recipes/export_model.h"

namespace pare {
namespace {

// The form with zero points: unsigned, what runtimes have kernels for.
DType with_zero_points(DType dtype) {
  if (dtype == DType::kI8) return DType::kU8;
  if (dtype == DType::kI16) return DType::kU16;
  if (dtype == DType::kI4) return DType::kU4;
  return dtype == DType::kI2 ? DType::kU2 : dtype;
}

void set_symmetric(quant::Format& format, std::optional<bool> symmetric) {
  if (!symmetric) return;
  format.symmetric = *symmetric;
  if (!*symmetric) format.dtype = with_zero_points(format.dtype);
}

void set_group(quant::Format& format, std::int64_t size) {
  if (size <= 0) return;
  if (format.scales != DType::kF32 && size != format.block)
    throw make_error(ErrorCode::kUsage, "blocks of {} have {} values, not {}", to_string(format),
                     format.block, size)
        .at("quantize.group_size")
        .hint("leave group_size out, or use int4");
  format.asked = true;
  format.block = static_cast<int>(size);
  if (format.rows > 1) format.rows = format.block;
  format.granularity = quant::Granularity::kBlock;
}

void apply(const WeightSpec& w, quant::Format& format) {
  if (!w.format.empty()) format = quant::weight_format(w.format);
  if (w.granularity == "tensor" || w.granularity == "channel") {
    if (format.scales != DType::kF32)
      throw make_error(ErrorCode::kUsage, "weights in {} have one scale a block", to_string(format))
          .at("quantize.weights.granularity")
          .hint("leave granularity out");
    format.granularity =
        w.granularity == "tensor" ? quant::Granularity::kTensor : quant::Granularity::kChannel;
    format.block = 0;
    format.rows = 1;
  } else if (!w.granularity.empty() && format.block == 0 && w.group_size == 0) {
    format.granularity = quant::Granularity::kBlock;
    format.block = 128;
  }
  set_group(format, w.group_size);
  set_symmetric(format, w.symmetric);
  // A block of FP8 weights is a square; of other formats it is a group.
  const bool fp8 = format.dtype == DType::kE4M3FN || format.dtype == DType::kE5M2;
  if (w.granularity == "block" && fp8 && format.scales == DType::kF32) format.rows = format.block;
  if (w.granularity == "group") format.rows = 1;
}

void apply(const ActivationSpec& a, quant::Format& format) {
  if (!a.format.empty()) format = quant::activation_format(a.format);
  if (!a.granularity.empty()) {
    if (format.granularity == quant::Granularity::kBlock)
      throw make_error(ErrorCode::kUsage, "activations in {} have one scale a block", to_string(format))
          .at("quantize.activations.granularity")
          .hint("leave granularity out");
    format.granularity = a.granularity == "tensor"    ? quant::Granularity::kTensor
                         : a.granularity == "channel" ? quant::Granularity::kChannel
                                                      : quant::Granularity::kToken;
    format.dynamic = format.granularity == quant::Granularity::kToken;
  }
  if (a.dynamic) format.dynamic = *a.dynamic;
  if (!a.search.empty()) format.fitted = a.search == "mse";
  set_symmetric(format, a.symmetric);
}

bool says(const WeightSpec& w) {
  return !w.format.empty() || !w.granularity.empty() || w.group_size > 0 || w.symmetric.has_value();
}
bool says(const ActivationSpec& a) {
  return !a.format.empty() || !a.granularity.empty() || a.symmetric.has_value() || a.dynamic.has_value() ||
         !a.search.empty();
}

quant::Rule rule_of(const RuleSpec& recipe, const quant::Spec& base) {
  quant::Rule rule;
  rule.match.name = recipe.match.name;
  rule.match.op = recipe.match.op;
  rule.match.tensor = recipe.match.tensor;
  rule.match.dtype = recipe.match.dtype;
  rule.match.block = recipe.match.block;
  rule.quantize = recipe.quantize;
  if (!recipe.method.empty()) rule.method = recipe.method;
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

void check_export_of(const Recipe& recipe, const quant::Spec& spec) {
  try {
    check_export(recipe.export_as.model, spec);
  } catch (Error& error) {
    throw error.at("export.model");
  }
}

}  // namespace

void check_supported(const Recipe& recipe) {
  quant::Spec spec;
  if (recipe.quantize) spec = quant_spec(*recipe.quantize);
  if (recipe.quantize || recipe.export_as.model != "qdq_onnx") check_export_of(recipe, spec);
}

quant::Spec quant_spec(const QuantizeSpec& q) {
  quant::Spec spec;
  spec.target = quant::target_from_name(q.target);
  // Without a scheme only what is named is quantized.
  spec.weights = spec.activations = quant::Format{};
  if (!q.scheme.empty()) {
    const quant::Scheme& scheme = quant::scheme_from_name(q.scheme);
    spec.weights = scheme.weights;
    spec.activations = scheme.activations;
  }
  apply(q.weights, spec.weights);
  apply(q.activations, spec.activations);
  set_group(spec.weights, q.group_size);
  if (!q.kv_cache.empty()) spec.kv_cache = quant::activation_format(q.kv_cache);
  spec.ops = q.ops;
  spec.method = q.method;
  if (q.weights.search == "amax") spec.method = "rtn";
  if (q.weights.search == "mse") spec.method = "search";
  if (!q.ignore.empty()) {
    quant::Rule rule;
    rule.match.name = q.ignore;
    rule.quantize = false;
    rule.origin = "quantize.ignore (--exclude)";
    spec.rules.push_back(std::move(rule));
  }
  for (std::size_t i = 0; i < q.rules.size(); ++i) {
    spec.rules.push_back(rule_of(q.rules[i], spec));
    spec.rules.back().origin = fmt::format("quantize.rules.{}", i);
  }
  spec.share = q.share;
  quant::check(spec);
  quant::check_target(spec);
  return spec;
}

QuantizeChoices quantize_choices(const QuantizeSpec& recipe) {
  QuantizeChoices choices;
  choices.spec = quant_spec(recipe);
  if (!recipe.activations.calibrator.empty()) choices.calibrator = recipe.activations.calibrator;
  choices.alpha = recipe.alpha;
  choices.rank = recipe.rank;
  choices.inputs = recipe.inputs;
  choices.objective = recipe.objective;
  if (recipe.output_damp) choices.solve.layer.output_damp = *recipe.output_damp;
  choices.scaling = recipe.scaling;
  choices.rotate = recipe.rotate;
  choices.bias_correction = recipe.bias_correction;
  if (recipe.damp) choices.solve.layer.damp = *recipe.damp;
  if (recipe.act_order)
    choices.solve.layer.order =
        *recipe.act_order ? quant::ColumnOrder::kDiagonal : quant::ColumnOrder::kNatural;
  if (recipe.column_order == "natural") choices.solve.layer.order = quant::ColumnOrder::kNatural;
  if (recipe.column_order == "group_aware") choices.solve.layer.order = quant::ColumnOrder::kGroupAware;
  for (const double percent : recipe.percentiles)
    if (std::find(choices.percentiles.begin(), choices.percentiles.end(), percent) ==
        choices.percentiles.end())
      choices.percentiles.push_back(percent);
  return choices;
}

}  // namespace pare
