#include "recipes/forecast.h"

#include <algorithm>
#include <chrono>

#include "calib/calibrate.h"
#include "engine/base/error.h"
#include "engine/base/memory.h"
#include "engine/build/lower_cpu.h"
#include "engine/run/session.h"
#include "eval/report_render.h"
#include "recipes/stages.h"

namespace pare {
namespace {

constexpr std::int64_t kProbe = 16;  // samples that are run to time one

// How much work a run is, in forward passes of the float model. The factors are measured on the examples:
// counting adds a third; scoring is a dozen candidates with their lowering; fake quantization is half as fast
// again as float, integer kernels about as fast.
constexpr double kCollect = 1.4, kCandidates = 14, kEvaluate = 3.5, kLayers = 5;

// A session holds its weights as the file has them, once folded and once packed for the kernels.
constexpr double kWeightCopies = 3;

double seconds_a_sample(RunState& state, const DatasetSpec& given, const Lowered& lowered) {
  DatasetSpec spec = given;
  spec.samples = kProbe;
  Dataset data(spec, model_inputs(state.graph()));
  const Batch batch = data.read(0, data.sample_count(), &state.pool());
  SessionOptions options;
  options.pool = &state.pool();
  Session session(lowered.graph, options);
  session.run(batch.inputs);
  const auto start = std::chrono::steady_clock::now();
  session.run(batch.inputs);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
         static_cast<double>(std::max<std::int64_t>(1, batch.count));
}

double constant_bytes(const Graph& graph) {
  double bytes = 0;
  for (std::size_t i = 0; i < graph.value_count(); ++i) {
    const Value& value = graph.value(static_cast<ValueId>(i));
    if (value.is_constant()) bytes += static_cast<double>(value.constant.bytes());
  }
  return bytes;
}

}  // namespace

Forecast forecast_run(RunState& state) {
  const Recipe& r = state.recipe();
  const bool calibrates = r.calibrate && !r.calibrate->data.empty();
  Forecast forecast;
  forecast.anonymous_bytes = static_cast<double>(peak_anonymous_bytes());
  if (!calibrates && !r.evaluate) return forecast;
  const Lowered lowered = lower_for_cpu(state.graph());
  const DatasetSpec probe = resolved_dataset(r, calibrates ? r.calibrate->data : r.evaluate->data);
  const double one = seconds_a_sample(state, probe, lowered);
  const double weights = constant_bytes(state.graph());
  double passes = 0, most = 0;
  if (calibrates) {
    const CalibrationSplit split = state.split();
    passes += kCollect * static_cast<double>(split.samples) +
              kCandidates * static_cast<double>(split.holdout.end - split.holdout.begin);
    const std::int64_t batch = std::min(probe.batch, split.samples);
    // Scoring runs a candidate beside the graphs and plans that it is made from.
    most = static_cast<double>(live_activation_bytes(*lowered.graph, batch)) + 3 * kWeightCopies * weights;
  }
  if (r.quantize && r.evaluate) {
    Dataset data(resolved_dataset(r, r.evaluate->data), model_inputs(state.graph()));
    passes += kEvaluate * static_cast<double>(data.sample_count()) +
              kLayers * static_cast<double>(std::min(r.evaluate->layer_samples, data.sample_count()));
    const std::int64_t batch = r.evaluate->batch > 0 ? r.evaluate->batch : data.batch_size();
    const int sessions = r.evaluate->arithmetic == "both" ? 3 : 2;
    most = std::max(most, sessions * (static_cast<double>(live_activation_bytes(*lowered.graph, batch)) +
                                      kWeightCopies * weights));
  }
  forecast.anonymous_bytes += most;
  forecast.seconds = one * passes + 1;
  return forecast;
}

std::string to_string(const Forecast& f) {
  return fmt::format("about {:.0f} s and {} of memory", f.seconds, bytes_text(f.anonymous_bytes));
}

}  // namespace pare
