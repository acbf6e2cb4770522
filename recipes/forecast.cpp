#include "recipes/forecast.h"

#include <algorithm>
#include <chrono>
#include <tuple>

#include "calib/calibrate.h"
#include "calib/collector.h"
#include "calib/gram_geometry.h"
#include "engine/base/error.h"
#include "engine/base/memory.h"
#include "engine/ir/subgraph.h"
#include "eval/evaluate.h"
#include "eval/report_render.h"
#include "quant/placement/activation.h"
#include "recipes/plan_report.h"
#include "recipes/quantize/quantize_model.h"
#include "recipes/quantize/solve_weights.h"
#include "recipes/stages.h"

namespace pare {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Candidates that `calibrator: auto` scores, corrected ones and smoothing counted; one otherwise.
constexpr double kCandidates = 13;
// Counting values costs some more than the float pass alone; so does hashing what was read.
constexpr double kCollect = 1.4;
// Beside what the rehearsal holds: statistics and histograms (64 KB a tensor), a report, what the allocator
// keeps.
constexpr double kBesides = 12e6, kBytesOfStatistics = 2.0 * 65536;

// The graph as it will be, but with ranges that mean nothing: one rounding, no search.
Graph stand_in(const Graph& graph, const quant::Spec& spec, ThreadPool& pool, std::size_t& sites) {
  quant::Plan plan;
  plan.placement = quant::place(graph, spec);
  sites = plan.placement.activations.size();
  for (quant::ActivationSite& site : plan.placement.activations) {
    // Scales a channel cost what one costs.
    if (site.format.granularity == quant::Granularity::kChannel)
      site.format.granularity = quant::Granularity::kTensor;
    const quant::ChosenRange range{-1, 1, ""};
    plan.activations.push_back(quant::needs_statistics(site.format)
                                   ? quant::activation_from_range(site.format, range)
                                   : quant::ActivationPlan{});
  }
  plan.weights = quant::plan_weights(graph, plan.placement, "rtn", pool);
  return quant::apply(graph, plan);
}

// Sessions keep something for each shape, and forget the oldest in the end.
constexpr std::int64_t kMostShapes = 100;

std::int64_t count_batches(const Dataset& data, std::int64_t batch) {
  std::int64_t batches = 0;
  for (std::int64_t begin = 0; begin < data.sample_count(); ++batches)
    begin = data.batch_end(begin, data.sample_count(), batch);
  return batches;
}

// Values are watched there, so batches are not split and every value has a buffer.
double calibration_bytes(RunState& state, double before) {
  const QuantizeChoices choices = quantize_choices(*state.recipe().quantize);
  const std::vector<CalibratedValue> values = calibrated_values(state.graph(), &choices.spec);
  if (values.empty()) return 0;
  const std::unique_ptr<Dataset> data = state.calibration_data(state.split().samples);
  const std::int64_t batch = data->fixed_batch() > 0 ? data->fixed_batch() : data->batch_size();
  const WatchableGraph watchable = lower_to_watch(state.graph(), values);
  double bytes = before;
  for (const InputSpec& input : data->inputs()) {
    double one = static_cast<double>(bits(input.dtype)) / 8;
    for (std::size_t d = 1; d < input.shape.dims.size(); ++d)
      one *= input.shape.dims[d].known() ? static_cast<double>(input.shape.dims[d].value) : 1.0;
    bytes += 2 * one * static_cast<double>(batch);
  }
  for (std::size_t i = 0; i < watchable.lowered.graph->value_count(); ++i) {
    const Value& value = watchable.lowered.graph->value(static_cast<ValueId>(i));
    if (value.is_constant()) bytes += 2 * static_cast<double>(value.constant.bytes());  // lowered, and packed
  }
  return bytes + static_cast<double>(live_activation_bytes(*watchable.lowered.graph, batch)) +
         static_cast<double>(
             Collector::predicted_bytes(static_cast<std::int64_t>(values.size()), state.pool().threads()));
}

// Gram matrices of the inputs of all layers (halves of symmetric ones, fitted and held out), and what solving
// the largest takes beside: whole matrices of both parts, a factor, a copy in work.
double gram_bytes(const Graph& graph, const quant::Placement& placement) {
  std::vector<std::tuple<SubgraphPath, ValueId, std::int64_t>> seen;
  double bytes = 0, largest = 0;
  for (const quant::WeightSite& site : placement.weights) {
    const Graph& scope = subgraph_at(graph, site.path);
    for (const Use& use : site.uses) {
      GramGeometry geometry;
      if (use.slot != 1 || !gram_geometry(scope, scope.node(use.node), geometry)) continue;
      const std::tuple one{site.path, scope.node(use.node).in[0], geometry.n()};
      if (std::find(seen.begin(), seen.end(), one) != seen.end()) continue;
      seen.push_back(one);
      const auto n = static_cast<double>(geometry.n());
      bytes += 2 * 8 * static_cast<double>(geometry.groups) * n * (n + 1) / 2;
      largest = std::max(largest, 8 * n * n);
    }
  }
  return bytes + 4 * largest;
}

// As quantize_model does.
bool collects_grams(const quant::Placement& placement) {
  return auto_weighs_outputs(placement) ||
         std::any_of(placement.weights.begin(), placement.weights.end(),
                     [](const quant::WeightSite& site) { return wants_grams(site.method); });
}

struct Rehearsal {
  double float_seconds = 0, fake_seconds = 0, integer_seconds = 0, layer_seconds = 0;  // a sample
  double peak = 0;  // bytes allocated at most meanwhile, of the whole process
};

// The evaluation of a few batches, once to warm up and once timed.
Rehearsal rehearse(const Graph& graph, const Graph& candidate, const DatasetSpec& given,
                   EvaluateOptions options, std::int64_t batches) {
  DatasetSpec spec = given;
  Rehearsal result;
  restart_recent_peak();
  Dataset whole(spec, model_inputs(graph));
  const std::int64_t batch =
      std::max<std::int64_t>(1, options.batch > 0 ? options.batch : whole.batch_size());
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < batches && end < whole.sample_count(); ++i)
    end = whole.batch_end(end, whole.sample_count(), whole.fixed_batch() > 0 ? whole.fixed_batch() : batch);
  spec.samples = end;
  Dataset data(spec, model_inputs(graph));
  const double samples = static_cast<double>(std::max<std::int64_t>(1, data.sample_count()));
  options.metrics = {"output_sqnr_db"};
  const std::int64_t layer_samples = options.layer_samples;
  options.layer_samples = 0;
  const Evaluation outputs = evaluate(graph, candidate, data, options);
  result.float_seconds = outputs.reference_seconds / samples;
  result.fake_seconds = outputs.candidate_seconds / samples;
  result.integer_seconds = outputs.integer_seconds / samples;
  if (layer_samples > 0) {
    // Layers alone: the pass over the outputs is known by now.
    options.layer_samples = std::min(layer_samples, data.sample_count());
    options.arithmetic = Arithmetic::kFake;
    const Clock::time_point start = Clock::now();
    evaluate(graph, candidate, data, options);
    result.layer_seconds = std::max(0.0, since(start) / samples - result.float_seconds - result.fake_seconds);
  }
  result.peak = static_cast<double>(recent_peak_anonymous_bytes());
  return result;
}

Arithmetic arithmetic_of(const std::string& name) {
  if (name == "fake") return Arithmetic::kFake;
  return name == "integer" ? Arithmetic::kInteger : Arithmetic::kBoth;
}

}  // namespace

Forecast forecast_run(RunState& state) {
  const Recipe& r = state.recipe();
  if (r.quantize && r.quantize->blocks) return forecast_blocks(state);
  const bool calibrates = r.calibrate && !r.calibrate->data.empty();
  const bool evaluates = r.quantize && r.evaluate;
  Forecast forecast;
  forecast.anonymous_bytes = static_cast<double>(current_anonymous_bytes());
  if (!calibrates && !evaluates) return forecast;
  const Graph& graph = state.graph();
  const double before = static_cast<double>(current_anonymous_bytes());
  const Clock::time_point begin = Clock::now();
  std::size_t sites = 0;
  const Graph candidate =
      r.quantize ? stand_in(graph, quantize_choices(*r.quantize).spec, state.pool(), sites) : graph;
  const double weights_seconds = since(begin);
  const DatasetSpec data_spec = resolved_dataset(r, evaluates ? r.evaluate->data : r.calibrate->data);
  EvaluateOptions options;
  options.pool = &state.pool();
  options.layer_samples = evaluates ? r.evaluate->layer_samples : 0;
  options.batch = evaluates ? r.evaluate->batch : 0;
  options.arithmetic = evaluates ? arithmetic_of(r.evaluate->arithmetic) : Arithmetic::kFake;
  const Rehearsal first = rehearse(graph, candidate, data_spec, options, 1);
  Dataset data(data_spec, model_inputs(graph));
  const bool varies = std::any_of(data.inputs().begin(), data.inputs().end(), [](const InputSpec& input) {
    for (std::size_t i = 1; i < input.shape.dims.size(); ++i)
      if (!input.shape.dims[i].known()) return true;
    return false;
  });
  // A further batch, warm: what one costs; with data of varying shapes also what each shape leaves behind.
  EvaluateOptions outputs = options;
  if (!varies) outputs.layer_samples = 0;
  const Rehearsal second = rehearse(graph, candidate, data_spec, outputs, varies ? 6 : 2);
  const auto later = [&](double Rehearsal::*part) {
    if (varies) return second.*part;
    // Sums over one and two batches: their difference has no first time in it.
    return std::max(2 * second.*part - first.*part, 0.3 * first.*part);
  };
  double seconds = 1;
  if (calibrates) {
    const CalibrationSplit split = state.split();
    const double holdout = static_cast<double>(split.holdout.end - split.holdout.begin);
    seconds += kCollect * later(&Rehearsal::float_seconds) * static_cast<double>(split.samples) +
               (kCandidates * later(&Rehearsal::fake_seconds) + later(&Rehearsal::float_seconds)) * holdout;
  }
  if (r.quantize) seconds += 3 * weights_seconds;
  if (evaluates) {
    const double samples = static_cast<double>(data.sample_count());
    const double layers = std::min(static_cast<double>(r.evaluate->layer_samples), samples);
    seconds += samples * (later(&Rehearsal::float_seconds) + later(&Rehearsal::fake_seconds) +
                          later(&Rehearsal::integer_seconds)) +
               layers * first.layer_seconds;
  }
  double peak = std::max(first.peak, second.peak);
  if (varies) {
    // Six and twelve batches, outputs alone: what each further shape leaves behind. Where layers are
    // compared, the sessions of two models have every value of theirs in memory, for the shapes of that part.
    EvaluateOptions alone = options;
    alone.layer_samples = 0;
    const double six = rehearse(graph, candidate, data_spec, alone, 6).peak,
                 twelve = rehearse(graph, candidate, data_spec, alone, 12).peak;
    const double shape = std::max(0.0, twelve - six) / 6;
    const auto further = [](std::int64_t batches, std::int64_t seen) {
      return static_cast<double>(std::clamp<std::int64_t>(batches - seen, 0, kMostShapes));
    };
    const std::int64_t batches = count_batches(data, std::max<std::int64_t>(1, data.batch_size()));
    peak = std::max(peak + shape * further(std::min(batches, options.layer_samples), 6),
                    twelve + shape * further(batches, 12));
  }
  if (calibrates && r.quantize) {
    peak = std::max(peak, calibration_bytes(state, before));
    const quant::Placement placement = quant::place(graph, quantize_choices(*r.quantize).spec);
    if (collects_grams(placement))
      peak = std::max(peak, calibration_bytes(state, before) + gram_bytes(graph, placement));
  }
  forecast.anonymous_bytes = peak + kBesides + kBytesOfStatistics * static_cast<double>(sites);
  forecast.seconds = seconds;
  return forecast;
}

std::string to_string(const Forecast& f) {
  return fmt::format("about {:.0f} s and {} of memory", f.seconds, bytes_text(f.anonymous_bytes));
}

}  // namespace pare
