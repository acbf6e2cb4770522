#include "recipes/study/layer_study.h"

#include "engine/base/error.h"
#include "engine/ir/subgraph.h"
#include "quant/placement/value_moving.h"
#include "recipes/quantize/scale_layers.h"

namespace pare {
namespace {

constexpr const char* kSqnr = "output_sqnr_db";

QuantizeChoices one_trial(QuantizeChoices choices) {
  if (choices.calibrator == "auto") choices.calibrator = "mse";
  if (choices.spec.method == "auto") choices.spec.method = "search";
  for (quant::Rule& rule : choices.spec.rules)
    if (rule.method && *rule.method == "auto") rule.method = "search";
  choices.inputs = "float";
  return choices;
}

}  // namespace

std::vector<StudyLayer> study_layers(const Graph& graph, const quant::Spec& spec) {
  const quant::Placement placement = quant::place(graph, spec);
  std::vector<StudyLayer> layers;
  walk_graphs(graph, [&](const SubgraphPath& path, const Graph& scope) {
    for (const NodeId id : scope.nodes()) {
      const Node& node = scope.node(id);
      if (!quant::is_linear(node)) continue;
      StudyLayer layer;
      for (int slot = 0; slot < 2; ++slot) {
        const std::optional<quant::WeightSource> source = quant::weight_source(scope, id, slot);
        for (const quant::WeightSite& site : placement.weights)
          if (source && site.path == path && site.value == source->value) {
            layer.format = quant::to_string(site.format);
            layer.weights += scope.value(site.value).constant.size();
          }
      }
      for (const quant::ActivationSite& site : placement.activations)
        for (const Use& use : site.uses)
          if (site.path == path && use.node == id && layer.format.empty())
            layer.format = quant::to_string(site.format);
      if (layer.format.empty()) continue;
      layer.rule_name = scope.value(node.out[0]).name;
      layer.label = value_label(graph, path, node.out[0]);
      layers.push_back(std::move(layer));
    }
  });
  return layers;
}

quant::Rule rule_for(const std::string& name, bool quantize) {
  quant::Rule rule;
  rule.match.name = {name};
  rule.quantize = quantize;
  return rule;
}

StudyJudge::StudyJudge(const SensitivityInput& input, const QuantizeChoices& choices) : in_(input) {
  PARE_ASSERT(in_.graph != nullptr && in_.data != nullptr && in_.pool != nullptr);
  info_ = find_metric(in_.metric);
  if (info_ == nullptr) {
    throw make_error(ErrorCode::kUsage, "there is no metric '{}'", in_.metric).hint(metric_hint(in_.metric));
  }
  options_.pool = in_.pool;
  options_.arithmetic = Arithmetic::kFake;
  options_.metrics = {in_.metric};
  look_at_data(choices);
  if (in_.metric == kSqnr) reference_ = collect_outputs(*in_.graph, *in_.data, all(), options_);
}

void StudyJudge::look_at_data(const QuantizeChoices& given) {
  const QuantizeChoices choices = one_trial(given);
  const quant::Placement placement = quant::place(*in_.graph, choices.spec);
  bool grams = false;
  looks_ = !choices.scaling.empty() || choices.bias_correction.value_or(false);
  for (const quant::WeightSite& site : placement.weights) {
    grams = grams || wants_grams(site.method);
    looks_ = looks_ || grams || scales_channels(site.method);
  }
  if (!grams || choices.rotate || in_.calibration == nullptr) return;  // rotated inputs are other ones
  grams_ =
      choices.objective == "model"
          ? LayerGrams::collect_gradients(*in_.graph, placement, *in_.calibration, *in_.pool, in_.progress)
          : LayerGrams::collect(*in_.graph, placement, *in_.calibration, *in_.pool, in_.progress);
}

StudyJudge::Verdict StudyJudge::judge(const Graph& candidate) {
  Verdict v;
  if (in_.metric == kSqnr) {
    v.metric = v.sqnr_db = output_sqnr_db(reference_, collect_outputs(candidate, *in_.data, all(), options_));
    return v;
  }
  EvaluateOptions options = options_;
  options.metrics.push_back(kSqnr);
  const Evaluation e = evaluate(*in_.graph, candidate, *in_.data, options);
  v.metric = e.candidate.at(in_.metric);
  v.sqnr_db = e.candidate.at(kSqnr);
  const auto it = e.reference.find(in_.metric);
  if (it != e.reference.end()) v.drop = metric_drop(*info_, GateKind::kDrop, it->second, v.metric);
  float_metric_ = it != e.reference.end() ? it->second : std::numeric_limits<double>::infinity();
  return v;
}

QuantizeOutcome StudyJudge::quantize(QuantizeChoices choices) const {
  QuantizeInput input;
  input.graph = in_.graph;
  input.stats = in_.stats;
  input.pool = in_.pool;
  input.journal = journal_.get();
  if (looks_) input.calibration = in_.calibration;
  if (!grams_.empty()) input.grams = &grams_;
  return quantize_model(input, one_trial(std::move(choices)));
}

}  // namespace pare
