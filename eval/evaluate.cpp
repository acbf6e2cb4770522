#include "eval/evaluate.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "datasets/state_feed.h"
#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/base/memory.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/run/session.h"
#include "eval/pair_layers.h"
#include "eval/scorer.h"

namespace pare {
namespace {

// A graph, lowered and ready to run.
class Runner {
 public:
  Runner(const Graph& graph, const LowerOptions& lower, const Dataset& data, ThreadPool* pool)
      : lowered_(lower_for_cpu(graph, lower)),
        session_(lowered_.graph, session_options(pool)),
        feed_(data, graph) {}

  // The results, without outputs that are states.
  std::vector<Tensor> run(const Batch& batch) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<Tensor> outputs = feed_.run(session_, batch);
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return outputs;
  }
  double seconds() const { return seconds_; }
  const std::vector<Realized>& realized() const { return lowered_.realized; }

 private:
  static SessionOptions session_options(ThreadPool* pool) {
    SessionOptions options;
    options.pool = pool;
    options.only_invariant = true;
    return options;
  }
  Lowered lowered_;
  Session session_;
  StateFeed feed_;
  double seconds_ = 0;
};

void check_same_interface(const Graph& a, const Graph& b) {
  const auto refuse = [](const std::string& what) {
    throw make_error(ErrorCode::kUsage, "reference and candidate differ in their {}", what)
        .hint("both must be versions of one model");
  };
  if (a.inputs.size() != b.inputs.size()) refuse("number of inputs");
  if (a.outputs.size() != b.outputs.size()) refuse("number of outputs");
  for (std::size_t i = 0; i < a.inputs.size(); ++i)
    if (a.value(a.inputs[i]).name != b.value(b.inputs[i]).name)
      refuse(
          fmt::format("input names ('{}' and '{}')", a.value(a.inputs[i]).name, b.value(b.inputs[i]).name));
}

std::int64_t batch_of(const Dataset& data, const EvaluateOptions& options) {
  if (data.fixed_batch() != 0) return data.fixed_batch();
  return std::max<std::int64_t>(
      1, options.batch > 0 ? std::min(options.batch, data.sample_count()) : data.batch_size());
}

Progress& progress_of(const EvaluateOptions& options) {
  return options.progress != nullptr ? *options.progress : no_progress();
}

template <typename Body>
void each_batch(Dataset& data, SampleRange range, const EvaluateOptions& options, const char* what,
                Body body) {
  const std::int64_t batch = batch_of(data, options);
  ProgressStep step(progress_of(options), what, range.end - range.begin);
  for (std::int64_t begin = range.begin, end = 0; begin < range.end; begin = end) {
    check_cancelled();
    end = data.batch_end(begin, range.end, batch);
    const Batch samples = data.read(begin, end, options.pool);
    body(samples);
    release_freed_memory();
    step.advance(samples.count);
  }
}

std::vector<std::string> result_names(const Graph& graph, const Dataset& data) {
  std::vector<std::string> names;
  const StateFeed feed(data, graph);
  for (const std::size_t i : feed.results()) names.push_back(graph.value(graph.outputs[i]).name);
  return names;
}

bool any_kernel(const std::vector<Realized>& rows) {
  return std::any_of(rows.begin(), rows.end(), [](const Realized& row) { return row.why.empty(); });
}

// Metrics, and the two arithmetics against each other. Its sessions are gone when it returns.
Evaluation compare_outputs(const Graph& reference, const Graph& candidate, Dataset& data,
                           const EvaluateOptions& options) {
  const bool fake = options.arithmetic != Arithmetic::kInteger;
  bool integer = options.arithmetic != Arithmetic::kFake;
  Evaluation result;
  result.samples = data.sample_count();

  LowerOptions as_float, as_integer;
  as_integer.integer = true;
  Runner reference_run(reference, as_float, data, options.pool);
  std::optional<Runner> fake_run, integer_run;
  if (fake) fake_run.emplace(candidate, as_float, data, options.pool);
  if (integer) {
    integer_run.emplace(candidate, as_integer, data, options.pool);
    result.realized = integer_run->realized();
    // A model that no integer kernel takes (FP8, weights only) would run the same way twice.
    if (fake && !any_kernel(result.realized)) {
      integer = false;
      integer_run.reset();
    }
  }

  const std::vector<std::string> names = result_names(reference, data);
  Scorer reference_score(options.metrics, data, names, false), fake_score(options.metrics, data, names, true),
      integer_score(options.metrics, data, names, true);
  std::vector<Comparison> between;
  each_batch(data, {0, data.sample_count()}, options, "evaluating", [&](const Batch& batch) {
    const std::vector<Tensor> want = reference_run.run(batch);
    reference_score.add(want, batch, nullptr, options.pool);
    std::vector<Tensor> by_fake, by_integer;
    if (fake) fake_score.add(by_fake = fake_run->run(batch), batch, &want, options.pool);
    if (integer) integer_score.add(by_integer = integer_run->run(batch), batch, &want, options.pool);
    if (!fake || !integer) return;
    between.resize(want.size());
    for (std::size_t i = 0; i < want.size(); ++i) between[i].add(by_fake[i].view(), by_integer[i].view());
    const std::vector<std::int64_t> a = largest_outputs(by_fake.at(0)), b = largest_outputs(by_integer.at(0));
    for (std::size_t i = 0; i < a.size(); ++i) result.arithmetic_top1_differs += a[i] == b[i] ? 0 : 1;
  });

  const Scorer& score = fake ? fake_score : integer_score;
  result.reference = reference_score.values();
  result.candidate = score.values();
  if (fake && integer) result.integer = integer_score.values();
  result.not_finite_reference = score.not_finite(true);
  result.not_finite_candidate = score.not_finite(false);
  if (fake && integer) result.not_finite_candidate += integer_score.not_finite(false);
  for (const Comparison& c : between)
    result.arithmetic_sqnr_db =
        result.arithmetic_sqnr_db ? std::min(*result.arithmetic_sqnr_db, c.sqnr_db()) : c.sqnr_db();
  result.reference_seconds = reference_run.seconds();
  if (fake) result.candidate_seconds = fake_run->seconds();
  if (integer) result.integer_seconds = integer_run->seconds();
  return result;
}

}  // namespace

Evaluation evaluate(const Graph& reference, const Graph& candidate, Dataset& data,
                    const EvaluateOptions& options) {
  check_metrics(options.metrics, data, true);
  check_same_interface(reference, candidate);
  Evaluation result = compare_outputs(reference, candidate, data, options);
  const bool wants_clipping =
      std::find(options.metrics.begin(), options.metrics.end(), "clipping_rate") != options.metrics.end();
  if (options.layer_samples > 0 || wants_clipping) {
    const LayerFigures figures = compare_layers(reference, candidate, data, options);
    result.layer_samples = figures.samples;
    result.layers = figures.layers;
    result.clipping = figures.clipping;
    if (wants_clipping) result.candidate["clipping_rate"] = figures.clipping_rate;
  }
  return result;
}

MetricValues evaluate_alone(const Graph& graph, Dataset& data, const EvaluateOptions& options) {
  check_metrics(options.metrics, data, false);
  LowerOptions lower;
  lower.integer = options.arithmetic == Arithmetic::kInteger;
  Runner run(graph, lower, data, options.pool);
  Scorer score(options.metrics, data, result_names(graph, data), false);
  each_batch(data, {0, data.sample_count()}, options, "evaluating",
             [&](const Batch& batch) { score.add(run.run(batch), batch, nullptr, options.pool); });
  return score.values();
}

BatchOutputs collect_outputs(const Graph& graph, Dataset& data, SampleRange range,
                             const EvaluateOptions& options) {
  LowerOptions lower;
  lower.integer = options.arithmetic == Arithmetic::kInteger;
  Runner run(graph, lower, data, options.pool);
  BatchOutputs all;
  each_batch(data, range, options, "scoring", [&](const Batch& batch) { all.push_back(run.run(batch)); });
  return all;
}

double output_sqnr_db(const BatchOutputs& reference, const BatchOutputs& candidate) {
  std::vector<Comparison> outputs(reference.empty() ? 0 : reference[0].size());
  for (std::size_t b = 0; b < reference.size(); ++b)
    for (std::size_t i = 0; i < outputs.size(); ++i)
      outputs[i].add(reference[b].at(i).view(), candidate.at(b).at(i).view());
  double least = HUGE_VAL;
  for (const Comparison& comparison : outputs) {
    if (std::isnan(comparison.sqnr_db())) return std::nan("");
    least = std::min(least, comparison.sqnr_db());
  }
  return least;
}

}  // namespace pare
