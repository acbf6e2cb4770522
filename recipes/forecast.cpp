#include "recipes/forecast.h"

#include <algorithm>
#include <chrono>
#include <tuple>

#include "calib/backward.h"
#include "calib/calibrate.h"
#include "calib/collector.h"
#include "engine/base/error.h"
#include "engine/base/memory.h"
#include "engine/ir/subgraph.h"
#include "eval/evaluate.h"
#include "eval/report_render.h"
#include "quant/placement/activation.h"
#include "recipes/build_stage.h"
#include "recipes/quantize/layer_grams.h"
#include "recipes/quantize/quantize_model.h"
#include "recipes/quantize/solve_weights.h"
#include "recipes/stages.h"

namespace pare {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Candidates that `calibrator: auto` scores, corrected ones and smoothing counted; one otherwise.
constexpr double kCandidates = 13;
// Second moments of all layers' inputs take so many float passes of the samples (1.6 on a Llama of width
// 512).
constexpr double kMoments = 1.6, kMomentSamples = 128;
// The same with gradients (quantize.objective: model): 17.9 s for 16 windows whose float evaluation takes 3,
// on the same model.
constexpr double kGradientMoments = 6;
// Of tensors that come and go the allocator keeps some: of the walk back's values so much (a Llama of width
// 512).
constexpr double kValuesKept = 1.25;
// What solving them in order, for the inputs that quantized layers give, takes beside that: both models
// again, three matrices a layer, codes between.
constexpr double kInOrder = 3.1;
// Enough for some to be held out.
constexpr std::int64_t kSolvedSamples = 16;
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

// A session in which values are watched, beside `before`: batches are not split and every value has a buffer.
double session_bytes(RunState& state, const std::vector<CalibratedValue>& values, const Dataset& data) {
  const std::int64_t batch = data.fixed_batch() > 0 ? data.fixed_batch() : data.batch_size();
  const WatchableGraph watchable = lower_to_watch(state.graph(), values);
  double bytes = 0;
  for (const InputSpec& input : data.inputs()) {
    double one = static_cast<double>(bits(input.dtype)) / 8;
    for (std::size_t d = 1; d < input.shape.dims.size(); ++d)
      one *= input.shape.dims[d].known() ? static_cast<double>(input.shape.dims[d].value) : 1.0;
    bytes += 2 * one * static_cast<double>(batch);
  }
  for (std::size_t i = 0; i < watchable.lowered.graph->value_count(); ++i) {
    const Value& value = watchable.lowered.graph->value(static_cast<ValueId>(i));
    if (value.is_constant()) bytes += 2 * static_cast<double>(value.constant.bytes());  // lowered, and packed
  }
  return bytes + static_cast<double>(live_activation_bytes(*watchable.lowered.graph, batch));
}

double calibration_bytes(RunState& state) {
  const QuantizeChoices choices = fitted_choices(state.recipe());
  const std::vector<CalibratedValue> values = calibrated_values(state.graph(), &choices.spec);
  if (values.empty()) return 0;
  return session_bytes(state, values, *state.calibration_data(state.split().samples)) +
         static_cast<double>(
             Collector::predicted_bytes(static_cast<std::int64_t>(values.size()), state.pool().threads()));
}

std::vector<CalibratedValue> inputs_of_layers(const Graph& graph, const quant::Placement& placement) {
  std::vector<CalibratedValue> values;
  for (const GramLayer& layer : gram_layers(graph, placement)) {
    const CalibratedValue value{layer.x, -1, layer.target.path};
    if (std::none_of(values.begin(), values.end(), [&](const CalibratedValue& other) {
          return other.id == value.id && other.path == value.path;
        }))
      values.push_back(value);
  }
  return values;
}

// What Gram matrices take while they are collected: a session, the matrices, positions that wait for a whole
// block. Then while the largest layer is solved, and while a candidate is scored (`scoring` beside them).
double gram_bytes(RunState& state, const quant::Placement& placement, double scoring) {
  const Graph& graph = state.graph();
  const std::unique_ptr<Dataset> data = state.calibration_data(state.split().samples);
  const GramForecast all = LayerGrams::forecast(graph, placement, *data);
  const double session = session_bytes(state, inputs_of_layers(graph, placement), *data);
  return kKeptByArenas + std::max({session + static_cast<double>(all.most),
                                   static_cast<double>(all.held) + solve_bytes(graph, placement),
                                   static_cast<double>(all.held) + scoring});
}

// The same with gradients: the values of a batch that the walk back reads, the logits and their gradient, a
// weight turned for that walk, two matrices a layer, of its inputs and of its outputs; these are kept while
// layers are solved.
double gradient_bytes(RunState& state, const quant::Placement& placement, double scoring) {
  const Graph& graph = state.graph();
  const std::unique_ptr<Dataset> data = state.calibration_data(state.split().samples);
  const Shape& window = data->inputs().at(0).shape;
  const auto bytes_of = [&](ValueId id) {  // what the graph leaves open are samples and positions
    double bytes = sizeof(float);
    const Shape& shape = graph.value(id).shape;
    for (std::size_t d = 0; d < shape.dims.size(); ++d)
      bytes *= static_cast<double>(shape.dims[d].known()                         ? shape.dims[d].value
                                   : d == 0                                      ? data->batch_size()
                                   : window.rank() > 1 && window.dims[1].known() ? window.dims[1].value
                                                                                 : 1);
    return bytes;
  };
  const std::vector<NodeId> layers = LayerGrams::gradient_layers(graph, placement);
  double collecting = session_bytes(state, inputs_of_layers(graph, placement), *data), held = 0;
  for (const NodeId layer : layers) {
    const Dims& dims = graph.value(graph.node(layer).in[1]).constant.dims();
    for (const std::int64_t n : dims) {
      collecting += static_cast<double>(GramAccumulator::waiting_bytes(n, 1));
      held += static_cast<double>(GramAccumulator::held_bytes(n, 1));
    }
    collecting += static_cast<double>(4 * dims[0] * dims[1]);
  }
  const Backward walk(graph, graph.outputs.at(0), layers, state.pool());
  double values = 2 * bytes_of(graph.outputs[0]);
  for (const ValueId id : walk.needed()) values += bytes_of(id);
  collecting += kValuesKept * values;
  return std::max({collecting + held, held + solve_bytes(graph, placement), held + scoring});
}

// The same where they are collected a part of the layers at a time, and not kept.
double part_bytes(RunState& state, const quant::Placement& placement) {
  const Graph& graph = state.graph();
  const std::unique_ptr<Dataset> data = state.calibration_data(state.split().samples);
  double most = 0;
  for (const std::vector<std::size_t>& weights : gram_parts(graph, placement, *data)) {
    const quant::Placement part = part_of(placement, weights);
    const GramForecast one = LayerGrams::forecast(graph, part, *data);
    most = std::max(
        {most, session_bytes(state, inputs_of_layers(graph, part), *data) + static_cast<double>(one.most),
         static_cast<double>(one.held) + solve_bytes(graph, part)});
  }
  return most + kKeptByArenas;
}

// What scoring a candidate takes beside what is there.
double scoring_bytes(RunState& state, const Graph& candidate) {
  const std::unique_ptr<Dataset> data = state.calibration_data(state.split().samples);
  const double before = static_cast<double>(current_anonymous_bytes());
  restart_recent_peak();
  EvaluateOptions options;
  options.pool = &state.pool();
  const std::int64_t batch = data->fixed_batch() > 0 ? data->fixed_batch() : data->batch_size();
  collect_outputs(candidate, *data, {0, data->batch_end(0, data->sample_count(), batch)}, options);
  return std::max(0.0, static_cast<double>(recent_peak_anonymous_bytes()) - before);
}

// As quantize_model does.
bool collects_grams(const quant::Placement& placement) {
  return auto_weighs_outputs(placement) ||
         std::any_of(placement.weights.begin(), placement.weights.end(),
                     [](const quant::WeightSite& site) { return wants_grams(site.method); });
}

// As quantize_model does: ranges are scored, or whole methods.
bool scores_candidates(const QuantizeChoices& choices) {
  const quant::Spec& spec = choices.spec;
  return spec.method == "auto" || (choices.calibrator == "auto" && quant::needs_statistics(spec)) ||
         std::any_of(spec.rules.begin(), spec.rules.end(),
                     [](const quant::Rule& rule) { return rule.method && *rule.method == "auto"; });
}

// Codes that are found with second moments of the layers' inputs: seconds for all layers. One of them, with
// at most an eighth of the work, is solved with the moments of a few samples; solving goes as rows *
// inputs^2.
double solving_seconds(RunState& state, const quant::Placement& placement, const QuantizeChoices& choices) {
  const Graph& graph = state.graph();
  quant::Placement solved;
  for (const quant::WeightSite& site : placement.weights) {
    if (site.method != "auto" && !wants_grams(site.method)) continue;
    solved.weights.push_back(site);
    solved.weights.back().fused = -1;
  }
  std::vector<GramLayer> layers = gram_layers(graph, solved);
  if (layers.empty()) return 0;
  const auto work = [](const GramLayer& layer) {
    const auto n = static_cast<double>(layer.geometry.n());
    return static_cast<double>(layer.rows) * n * n;
  };
  std::sort(layers.begin(), layers.end(),
            [&](const GramLayer& a, const GramLayer& b) { return work(a) < work(b); });
  double all = 0;
  for (const GramLayer& layer : layers) all += work(layer) * static_cast<double>(layer.nodes.size());
  std::size_t chosen = 0;
  while (chosen + 1 < layers.size() && work(layers[chosen + 1]) <= all / 8) ++chosen;
  quant::Placement one;
  for (const quant::WeightSite& site : solved.weights) {
    quant::Placement alone;
    alone.weights = {site};
    const std::vector<GramLayer> its = gram_layers(graph, alone);
    if (!its.empty() && its[0].x == layers[chosen].x && work(its[0]) == work(layers[chosen])) {
      one = std::move(alone);
      break;
    }
  }
  if (one.weights.empty()) return 0;
  const std::unique_ptr<Dataset> data =
      state.calibration_data(std::min(state.split().samples, kSolvedSamples));
  const LayerGrams grams = LayerGrams::collect(graph, one, *data, state.pool(), nullptr);
  SolveOptions options = choices.solve;
  options.searched = false;
  const Clock::time_point start = Clock::now();
  solve_weights(graph, one, grams, options, nullptr, no_progress(), state.pool());
  return since(start) * all / work(layers[chosen]);
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

// What stage `build` adds, behind all others.
void add_build(RunState& state, const Graph& model, double before, Forecast& forecast) {
  if (!state.recipe().build) return;
  const BuildForecast build = forecast_build(state, model);
  forecast.seconds += build.seconds;
  forecast.anonymous_bytes = std::max(forecast.anonymous_bytes, before + build.bytes + kBesides);
}

Forecast forecast_run(RunState& state) {
  const Recipe& r = state.recipe();
  if (r.quantize && r.quantize->blocks) return forecast_blocks(state);
  const bool calibrates = r.calibrate && !r.calibrate->data.empty();
  const bool evaluates = r.quantize && r.evaluate;
  Forecast forecast;
  forecast.anonymous_bytes = static_cast<double>(current_anonymous_bytes());
  const double before = forecast.anonymous_bytes;
  if (!calibrates && !evaluates && !r.build) return forecast;
  const Graph& graph = state.graph();
  const Clock::time_point begin = Clock::now();
  std::size_t sites = 0;
  const Graph candidate = r.quantize ? stand_in(graph, fitted_choices(r).spec, state.pool(), sites) : graph;
  const double weights_seconds = since(begin);
  if (!calibrates && !evaluates) {
    add_build(state, candidate, before, forecast);
    return forecast;
  }
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
    const double one = later(&Rehearsal::float_seconds), samples = static_cast<double>(split.samples);
    if (!r.quantize || quant::needs_statistics(fitted_choices(r).spec)) seconds += kCollect * one * samples;
    if (r.quantize) {
      const QuantizeChoices choices = fitted_choices(r);
      if (scores_candidates(choices))
        seconds += (kCandidates * later(&Rehearsal::fake_seconds) + one) * holdout;
      const quant::Placement placement = quant::place(graph, choices.spec);
      const bool grams = collects_grams(placement);
      if (scores_candidates(choices) || grams) {
        // Channel factors have codes of their own; without matrices of all layers, what is best has.
        const double parts = grams ? 0 : static_cast<double>(gram_parts(graph, placement, data).size());
        seconds +=
            (grams && scores_candidates(choices) ? 2 : 1) * solving_seconds(state, placement, choices) +
            kMoments * parts * one * samples;
      }
      if (grams)
        seconds += (choices.objective == "model" ? kGradientMoments : kMoments) *
                   (choices.inputs == "quantized" ? 1 + kInOrder : 1) * one *
                   std::min(samples, kMomentSamples);
    }
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
    peak = std::max(peak, before + calibration_bytes(state));
    const quant::Placement placement = quant::place(graph, fitted_choices(r).spec);
    if (collects_grams(placement) && fitted_choices(r).objective == "model")
      peak = std::max(peak, before + gradient_bytes(state, placement, scoring_bytes(state, candidate)));
    else if (collects_grams(placement))
      peak = std::max(peak, before + gram_bytes(state, placement, scoring_bytes(state, candidate)));
    else if (std::any_of(placement.weights.begin(), placement.weights.end(),
                         [](const quant::WeightSite& site) { return site.method == "auto"; }))
      peak = std::max(peak, before + part_bytes(state, placement));
  }
  forecast.anonymous_bytes = peak + kBesides + kBytesOfStatistics * static_cast<double>(sites);
  forecast.seconds = seconds;
  add_build(state, candidate, before, forecast);
  return forecast;
}

std::string to_string(const Forecast& f) {
  return fmt::format("about {:.0f} s and {} of memory", f.seconds, bytes_text(f.anonymous_bytes));
}

}  // namespace pare
