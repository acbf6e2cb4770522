#include "recipes/sensitivity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/ir/subgraph.h"
#include "eval/metric_table.h"
#include "quant/value_moving.h"

namespace pare {
namespace {

struct Layer {
  std::string label, rule_name;  // for people; what a rule calls it
  std::string format;
  std::int64_t weights = 0;
};

// The layers that a spec quantizes, in graph order.
std::vector<Layer> layers_of(const Graph& graph, const quant::Spec& spec) {
  const quant::Placement placement = quant::place(graph, spec);
  std::vector<Layer> layers;
  walk_graphs(graph, [&](const SubgraphPath& path, const Graph& scope) {
    for (const NodeId id : scope.nodes()) {
      const Node& node = scope.node(id);
      if (!quant::is_linear(node)) continue;
      Layer layer;
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

// Judges candidates against the float model on the same data; its outputs are computed once.
class Judge {
 public:
  explicit Judge(const SensitivityInput& input) : in_(input) {
    PARE_ASSERT(in_.graph != nullptr && in_.data != nullptr && in_.pool != nullptr);
    info_ = find_metric(in_.metric);
    if (info_ == nullptr) {
      const std::vector<const char*> names = metric_names();
      const std::string near = nearest_word(in_.metric, names.data(), names.size());
      throw make_error(ErrorCode::kUsage, "there is no metric '{}'", in_.metric)
          .hint(near.empty() ? "`pare eval --help` lists them" : fmt::format("did you mean '{}'?", near));
    }
    options_.pool = in_.pool;
    options_.arithmetic = Arithmetic::kFake;
    options_.metrics = {in_.metric};
    if (in_.metric == kSqnr) reference_ = collect_outputs(*in_.graph, *in_.data, all(), options_);
  }

  struct Verdict {
    double metric = 0, drop = 0, sqnr_db = 0;
  };

  Verdict judge(const Graph& candidate) {
    Verdict v;
    if (in_.metric == kSqnr) {
      v.metric = v.sqnr_db =
          output_sqnr_db(reference_, collect_outputs(candidate, *in_.data, all(), options_));
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

  double float_metric() const { return float_metric_; }
  bool is_at_least(double metric, double limit) const {
    return info_->higher_is_better ? metric >= limit : metric <= limit;
  }
  bool is_better(double a, double b) const { return info_->higher_is_better ? a > b : a < b; }

  QuantizeOutcome quantize(QuantizeChoices choices) const {
    if (choices.calibrator == "auto") choices.calibrator = "mse";
    if (choices.spec.method == "auto") choices.spec.method = "search";
    QuantizeInput input;
    input.graph = in_.graph;
    input.stats = in_.stats;
    input.pool = in_.pool;
    return quantize_model(input, choices);
  }

 private:
  static constexpr const char* kSqnr = "output_sqnr_db";
  SampleRange all() const { return {0, in_.data->sample_count()}; }

  const SensitivityInput& in_;
  const MetricInfo* info_ = nullptr;
  EvaluateOptions options_;
  BatchOutputs reference_;
  double float_metric_ = std::numeric_limits<double>::infinity();
};

Progress& progress_of(const SensitivityInput& input) {
  return input.progress != nullptr ? *input.progress : no_progress();
}

double noise_of(double sqnr_db) { return std::pow(10.0, -sqnr_db / 10); }

// Bits a weight over all weights of the layers, codes and scales counted; 32 where they stay float.
double bits_of(const quant::Plan& plan, std::int64_t weights) {
  double bits = 0, coded = 0;
  for (const quant::WeightPlan& weight : plan.weights) {
    bits += 8.0 * static_cast<double>(weight.bytes());
    coded += static_cast<double>(weight.codes.size());
  }
  bits += 32.0 * std::max(0.0, static_cast<double>(weights) - coded);
  return weights == 0 ? 0 : bits / static_cast<double>(weights);
}

}  // namespace

std::vector<LayerSensitivity> measure_sensitivity(const SensitivityInput& input,
                                                  const SensitivityOptions& options) {
  const std::vector<Layer> layers = layers_of(*input.graph, options.choices.spec);
  Judge judge(input);
  Judge::Verdict whole;
  if (options.all_but_one) whole = judge.judge(judge.quantize(options.choices).quantized);
  std::vector<LayerSensitivity> rows;
  ProgressStep step(progress_of(input), "layers", static_cast<std::int64_t>(layers.size()));
  for (const Layer& layer : layers) {
    check_cancelled();
    QuantizeChoices choices = options.choices;
    if (!options.all_but_one) choices.spec.rules.push_back(rule_for("re:.*", false));
    choices.spec.rules.push_back(rule_for(layer.rule_name, !options.all_but_one));
    const Judge::Verdict v = judge.judge(judge.quantize(choices).quantized);
    LayerSensitivity row{layer.label, layer.format, v.metric, v.drop, v.sqnr_db};
    // What leaving it float wins.
    if (options.all_but_one)
      row.drop = judge.is_better(v.metric, whole.metric) ? std::fabs(v.metric - whole.metric)
                                                         : -std::fabs(v.metric - whole.metric);
    rows.push_back(std::move(row));
    step.advance(1);
  }
  std::stable_sort(rows.begin(), rows.end(), [&](const LayerSensitivity& a, const LayerSensitivity& b) {
    if (a.drop != b.drop) return a.drop > b.drop;
    return options.all_but_one ? a.sqnr_db > b.sqnr_db : a.sqnr_db < b.sqnr_db;
  });
  return rows;
}

namespace {

// One layer with one scheme.
struct Option {
  std::string scheme;
  double noise = 0, bits = 0;  // of its weights, in all
};

quant::Rule rule_with(const std::string& name, const std::string& scheme) {
  quant::Rule rule = rule_for(name, scheme != "float");
  if (scheme == "float") return rule;
  rule.weights = quant::scheme_from_name(scheme).weights;
  rule.activations = quant::scheme_from_name(scheme).activations;
  return rule;
}

}  // namespace

SearchResult search_formats(const SensitivityInput& input, const SearchOptions& options) {
  if (options.schemes.empty()) fail(ErrorCode::kUsage, "no schemes to choose from");
  for (const std::string& scheme : options.schemes)
    if (scheme != "float") quant::scheme_from_name(scheme);
  QuantizeChoices base = options.choices;
  Judge judge(input);
  // The layers are those of the first scheme that quantizes: placement decides, rules may leave some alone.
  std::vector<Layer> layers;
  for (const std::string& scheme : options.schemes) {
    if (scheme == "float") continue;
    base.spec.weights = quant::scheme_from_name(scheme).weights;
    base.spec.activations = quant::scheme_from_name(scheme).activations;
    const std::vector<Layer> found = layers_of(*input.graph, base.spec);
    if (found.size() > layers.size()) layers = found;
  }
  std::int64_t weights = 0;
  for (const Layer& layer : layers) weights += layer.weights;

  std::vector<std::vector<Option>> choices_of(layers.size());
  {
    ProgressStep step(progress_of(input), "layers",
                      static_cast<std::int64_t>(layers.size() * options.schemes.size()));
    for (std::size_t i = 0; i < layers.size(); ++i)
      for (const std::string& scheme : options.schemes) {
        check_cancelled();
        Option option{scheme, 0, 32.0 * static_cast<double>(layers[i].weights)};
        if (scheme != "float") {
          QuantizeChoices alone = base;
          alone.spec.rules.push_back(rule_for("re:.*", false));
          alone.spec.rules.push_back(rule_with(layers[i].rule_name, scheme));
          const QuantizeOutcome outcome = judge.quantize(alone);
          option.noise = noise_of(judge.judge(outcome.quantized).sqnr_db);
          option.bits = bits_of(outcome.plan, layers[i].weights) * static_cast<double>(layers[i].weights);
        }
        choices_of[i].push_back(option);
        step.advance(1);
      }
  }

  // The path: from most bits to fewest, each step the cheapest in noise for a bit.
  std::vector<std::size_t> now(layers.size(), 0);
  for (std::size_t i = 0; i < layers.size(); ++i)
    for (std::size_t k = 1; k < choices_of[i].size(); ++k) {
      const Option &a = choices_of[i][k], &b = choices_of[i][now[i]];
      if (a.bits > b.bits || (a.bits == b.bits && a.noise < b.noise)) now[i] = k;
    }
  std::vector<std::vector<std::size_t>> path = {now};
  for (;;) {
    double best = std::numeric_limits<double>::infinity();
    std::size_t layer = layers.size(), to = 0;
    for (std::size_t i = 0; i < layers.size(); ++i)
      for (std::size_t k = 0; k < choices_of[i].size(); ++k) {
        const double saved = choices_of[i][now[i]].bits - choices_of[i][k].bits;
        if (!(saved > 0)) continue;
        const double cost = (choices_of[i][k].noise - choices_of[i][now[i]].noise) / saved;
        if (cost < best) {
          best = cost;
          layer = i;
          to = k;
        }
      }
    if (layer == layers.size()) break;
    now[layer] = to;
    path.push_back(now);
  }

  std::set<std::size_t> wanted;
  const auto points = static_cast<std::size_t>(std::max(2, options.points));
  for (std::size_t p = 0; p < points; ++p) wanted.insert(p * (path.size() - 1) / (points - 1));
  SearchResult result;
  ProgressStep step(progress_of(input), "front", static_cast<std::int64_t>(wanted.size()));
  for (const std::size_t at : wanted) {
    check_cancelled();
    QuantizeChoices mixed = base;
    SearchPoint point;
    mixed.spec.rules.push_back(rule_for("re:.*", false));
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const std::string& scheme = choices_of[i][path[at][i]].scheme;
      mixed.spec.rules.push_back(rule_with(layers[i].rule_name, scheme));
      point.layers.push_back({layers[i].label, scheme});
    }
    const bool all_float = std::all_of(point.layers.begin(), point.layers.end(),
                                       [](const SearchChoice& c) { return c.format == "float"; });
    const QuantizeOutcome outcome = all_float ? QuantizeOutcome{} : judge.quantize(mixed);
    const Judge::Verdict v = judge.judge(all_float ? *input.graph : outcome.quantized);
    point.metric = v.metric;
    point.sqnr_db = v.sqnr_db;
    point.bits_per_weight = bits_of(outcome.plan, weights);
    result.front.push_back(std::move(point));
    step.advance(1);
  }
  result.reference = judge.float_metric();
  std::size_t chosen = 0;
  for (std::size_t i = 1; i < result.front.size(); ++i) {
    const SearchPoint &a = result.front[i], &b = result.front[chosen];
    const bool keeps = judge.is_at_least(a.metric, options.least),
               kept = judge.is_at_least(b.metric, options.least);
    if (keeps ? !kept || a.bits_per_weight < b.bits_per_weight : !kept && judge.is_better(a.metric, b.metric))
      chosen = i;
  }
  if (!result.front.empty()) result.front[chosen].chosen = true;
  return result;
}

}  // namespace pare
