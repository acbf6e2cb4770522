#include "recipes/study/sensitivity.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <set>

#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/run/session.h"
#include "recipes/study/layer_study.h"

namespace pare {
namespace {

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
  const std::vector<StudyLayer> layers = study_layers(*input.graph, options.choices.spec);
  StudyJudge judge(input, options.choices);
  StudyJudge::Verdict whole;
  if (options.all_but_one) whole = judge.judge(judge.quantize(options.choices).quantized);
  std::vector<LayerSensitivity> rows;
  ProgressStep step(progress_of(input), "layers", static_cast<std::int64_t>(layers.size()));
  for (const StudyLayer& layer : layers) {
    check_cancelled();
    QuantizeChoices choices = options.choices;
    if (!options.all_but_one) choices.spec.rules.push_back(rule_for("re:.*", false));
    choices.spec.rules.push_back(rule_for(layer.rule_name, !options.all_but_one));
    const StudyJudge::Verdict v = judge.judge(judge.quantize(choices).quantized);
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

// Medians of rounds in which every point runs once, so that what else the machine does meets all alike.
void time_points(const std::vector<Graph>& graphs, const SensitivityInput& input,
                 std::vector<SearchPoint>& points) {
  constexpr int kRounds = 15;
  const std::int64_t batch = input.data->batch_end(0, input.data->sample_count(), input.data->batch_size());
  const std::vector<Tensor> inputs = input.data->read(0, batch, input.pool).inputs;
  SessionOptions options;
  options.pool = input.pool;
  options.only_invariant = false;
  LowerOptions lower;
  lower.integer = true;
  std::vector<std::unique_ptr<Session>> sessions;
  for (const Graph& graph : graphs)
    sessions.push_back(std::make_unique<Session>(lower_for_cpu(graph, lower).graph, options));
  std::vector<std::vector<double>> ms(graphs.size());
  ProgressStep step(progress_of(input), "timing", kRounds);
  for (int round = 0; round <= kRounds; ++round) {
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      check_cancelled();
      const auto start = std::chrono::steady_clock::now();
      sessions[i]->run(inputs);
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
      if (round > 0) ms[i].push_back(took.count());  // the first allocates
    }
    if (round > 0) step.advance(1);
  }
  for (std::size_t i = 0; i < ms.size(); ++i) {
    std::nth_element(ms[i].begin(), ms[i].begin() + kRounds / 2, ms[i].end());
    points[i].latency_ms = ms[i][kRounds / 2];
  }
}

}  // namespace

SearchResult search_formats(const SensitivityInput& input, const SearchOptions& options) {
  if (options.schemes.empty())
    throw make_error(ErrorCode::kUsage, "no schemes to choose from").hint("name one: --schemes int8,fp8");
  for (const std::string& scheme : options.schemes)
    if (scheme != "float") quant::scheme_from_name(scheme);
  QuantizeChoices base = options.choices;
  // The layers are those of the scheme that quantizes most: placement decides, rules may leave some alone.
  std::vector<StudyLayer> layers;
  QuantizeChoices most = base;
  for (const std::string& scheme : options.schemes) {
    if (scheme == "float") continue;
    base.spec.weights = quant::scheme_from_name(scheme).weights;
    base.spec.activations = quant::scheme_from_name(scheme).activations;
    const std::vector<StudyLayer> found = study_layers(*input.graph, base.spec);
    if (found.size() <= layers.size()) continue;
    layers = found;
    most = base;
  }
  StudyJudge judge(input, most);
  std::int64_t weights = 0;
  for (const StudyLayer& layer : layers) weights += layer.weights;

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
  std::vector<Graph> built;  // by_latency only
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
    const StudyJudge::Verdict v = judge.judge(all_float ? *input.graph : outcome.quantized);
    point.metric = v.metric;
    point.sqnr_db = v.sqnr_db;
    point.bits_per_weight = bits_of(outcome.plan, weights);
    result.front.push_back(std::move(point));
    if (options.by_latency) built.push_back(all_float ? *input.graph : outcome.quantized);
    step.advance(1);
  }
  if (options.by_latency) time_points(built, input, result.front);
  result.reference = judge.float_metric();
  std::size_t chosen = 0;
  for (std::size_t i = 1; i < result.front.size(); ++i) {
    const SearchPoint &a = result.front[i], &b = result.front[chosen];
    const bool keeps = judge.is_at_least(a.metric, options.least),
               kept = judge.is_at_least(b.metric, options.least);
    const bool cheaper =
        options.by_latency ? a.latency_ms < b.latency_ms : a.bits_per_weight < b.bits_per_weight;
    if (keeps ? !kept || cheaper : !kept && judge.is_better(a.metric, b.metric)) chosen = i;
  }
  if (!result.front.empty()) result.front[chosen].chosen = true;
  return result;
}

}  // namespace pare
