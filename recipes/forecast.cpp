#include "recipes/forecast.h"

#include <algorithm>
#include <chrono>

#include "engine/base/error.h"
#include "engine/base/memory.h"
#include "engine/build/lower_cpu.h"
#include "engine/run/session.h"
#include "eval/report_render.h"
#include "recipes/stages.h"

namespace pare {
namespace {

// How much work a run is, in forward passes of the float model, measured on the examples: counting adds a
// little; scoring is a dozen candidates with their lowering; fake quantization costs about what float does,
// integer kernels less.
constexpr double kCollect = 1.2, kCandidates = 14, kEvaluate = 2.6, kLayers = 5;

// Beside the sessions: graphs, plans and statistics, and what the allocator keeps of them (measured).
constexpr double kBesides = 40e6, kWeightCopies = 2;

double constant_bytes(const Graph& graph) {
  double bytes = 0;
  for (std::size_t i = 0; i < graph.value_count(); ++i) {
    const Value& value = graph.value(static_cast<ValueId>(i));
    if (value.is_constant()) bytes += static_cast<double>(value.constant.bytes());
  }
  return bytes;
}

struct Probe {
  double seconds = 0;  // of one sample
  double held = 0;     // bytes that one session holds between batches
  double most = 0;     // bytes that it needs for a moment: packing weights, or running a batch
};

// One batch of the data's first samples, twice: the second is timed.
Probe run_probe(RunState& state, const DatasetSpec& given, const Lowered& lowered, std::int64_t batch) {
  DatasetSpec spec = given;
  spec.batch = batch;
  Dataset data(spec, model_inputs(state.graph()));
  const std::int64_t end = data.batch_end(0, data.sample_count(), data.batch_size());
  const Batch samples = data.read(0, end, &state.pool());
  const std::int64_t before = current_anonymous_bytes();
  SessionOptions options;
  options.pool = &state.pool();
  Session session(lowered.graph, options);
  session.run(samples.inputs);
  const auto start = std::chrono::steady_clock::now();
  session.run(samples.inputs);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  Probe probe;
  probe.seconds = seconds / static_cast<double>(std::max<std::int64_t>(1, samples.count));
  probe.held = static_cast<double>(std::max<std::int64_t>(0, current_anonymous_bytes() - before));
  probe.most = static_cast<double>(std::max<std::int64_t>(0, peak_anonymous_bytes() - before));
  return probe;
}

}  // namespace

Forecast forecast_run(RunState& state) {
  const Recipe& r = state.recipe();
  const bool calibrates = r.calibrate && !r.calibrate->data.empty();
  const bool evaluates = r.quantize && r.evaluate;
  Forecast forecast;
  forecast.anonymous_bytes = static_cast<double>(current_anonymous_bytes());
  if (!calibrates && !evaluates) return forecast;
  const Lowered lowered = lower_for_cpu(state.graph());
  const DatasetSpec data_spec = resolved_dataset(r, evaluates ? r.evaluate->data : r.calibrate->data);
  std::int64_t batch = data_spec.batch;
  if (evaluates && r.evaluate->batch > 0) batch = r.evaluate->batch;
  const Probe one = run_probe(state, data_spec, lowered, batch);
  double passes = 0;
  // Scoring has the reference's session beside the candidate's; evaluation has one for each arithmetic more.
  int sessions = 2;
  if (calibrates) {
    const CalibrationSplit split = state.split();
    passes += kCollect * static_cast<double>(split.samples) +
              kCandidates * static_cast<double>(split.holdout.end - split.holdout.begin);
  }
  if (evaluates) {
    Dataset data(data_spec, model_inputs(state.graph()));
    passes += kEvaluate * static_cast<double>(data.sample_count()) +
              kLayers * static_cast<double>(std::min(r.evaluate->layer_samples, data.sample_count()));
    sessions = r.evaluate->arithmetic == "both" ? 3 : 2;
  }
  forecast.anonymous_bytes += kBesides + kWeightCopies * constant_bytes(state.graph());
  // Sessions run one after the other: all hold their weights, one is at its peak.
  forecast.anonymous_bytes += (sessions - 1) * one.held + std::max(one.most, one.held);
  forecast.seconds = one.seconds * passes + 1;
  return forecast;
}

std::string to_string(const Forecast& f) {
  return fmt::format("about {:.0f} s and {} of memory", f.seconds, bytes_text(f.anonymous_bytes));
}

}  // namespace pare
