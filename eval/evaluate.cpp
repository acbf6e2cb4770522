#include "eval/evaluate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <set>

#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/build/lower_cpu.h"
#include "engine/run/session.h"
#include "eval/metric_table.h"
#include "eval/pair_layers.h"

namespace pare {
namespace {

// A graph, lowered and ready to run.
class Runner {
 public:
  Runner(const Graph& graph, const LowerOptions& lower, ThreadPool* pool)
      : lowered_(lower_for_cpu(graph, lower)), session_(lowered_.graph, session_options(pool)) {}

  std::vector<Tensor> run(const std::vector<Tensor>& inputs) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<Tensor> outputs = session_.run(inputs);
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
  double seconds_ = 0;
};

// Metrics of one model over a stream of batches.
class Scorer {
 public:
  // `compared`: outputs of a reference come with each batch.
  Scorer(const std::vector<std::string>& metrics, bool compared) : metrics_(metrics), compared_(compared) {}

  void add(const std::vector<Tensor>& outputs, const Tensor& labels, const std::vector<Tensor>* reference) {
    if (wants("top1")) top1_.add(outputs.at(0).view(), labels.view());
    if (wants("top5")) top5_.add(outputs.at(0).view(), labels.view());
    if (reference == nullptr) return;
    outputs_.resize(outputs.size());
    for (std::size_t i = 0; i < outputs.size(); ++i)
      outputs_[i].add((*reference)[i].view(), outputs[i].view());
  }

  MetricValues values() const {
    MetricValues out;
    if (wants("top1")) out["top1"] = top1_.share();
    if (wants("top5")) out["top5"] = top5_.share();
    if (!compared_ || outputs_.empty()) return out;
    // Of several outputs the worst one counts: an average would hide it.
    double sqnr = outputs_[0].sqnr_db(), cosine = outputs_[0].cosine(), max_abs = outputs_[0].max_abs();
    for (const Comparison& c : outputs_) {
      sqnr = worse(sqnr, c.sqnr_db(), true);
      cosine = worse(cosine, c.cosine(), true);
      max_abs = worse(max_abs, c.max_abs(), false);
    }
    if (wants("output_sqnr_db")) out["output_sqnr_db"] = sqnr;
    if (wants("output_cosine")) out["output_cosine"] = cosine;
    if (wants("max_abs")) out["max_abs"] = max_abs;
    return out;
  }

  std::int64_t not_finite(bool reference) const {
    std::int64_t sum = 0;
    for (const Comparison& c : outputs_)
      sum += reference ? c.not_finite_reference() : c.not_finite_candidate();
    return sum;
  }

 private:
  bool wants(const char* name) const {
    return std::find(metrics_.begin(), metrics_.end(), name) != metrics_.end();
  }
  static double worse(double a, double b, bool higher_is_better) {
    if (std::isnan(a) || std::isnan(b)) return std::nan("");
    return higher_is_better ? std::min(a, b) : std::max(a, b);
  }

  const std::vector<std::string>& metrics_;
  bool compared_;
  TopK top1_{1}, top5_{5};
  std::vector<Comparison> outputs_;
};

void check_metrics(const std::vector<std::string>& metrics, const Dataset& data, bool reference) {
  const std::vector<const char*> names = metric_names();
  for (const std::string& name : metrics) {
    const MetricInfo* info = find_metric(name);
    if (info == nullptr) {
      const std::string near = nearest_word(name, names.data(), names.size());
      throw make_error(ErrorCode::kUsage, "there is no metric '{}'", name)
          .hint(near.empty() ? "" : fmt::format("did you mean '{}'?", near));
    }
    if (!info->implemented)
      throw make_error(ErrorCode::kUnsupported, "this build does not compute the metric {}", name)
          .hint("classifiers: top1, top5; any model: output_sqnr_db, output_cosine, max_abs, clipping_rate");
    if (info->needs_labels && !data.has_labels())
      throw make_error(ErrorCode::kUsage, "metric {} needs labels, and the data has none", name)
          .at(data.spec().path)
          .hint("add labels=FILE to the data");
    if (!info->absolute && !reference)
      throw make_error(ErrorCode::kUsage, "metric {} compares with a reference, and there is none", name)
          .hint("give a reference model");
  }
}

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
  for (std::int64_t begin = range.begin; begin < range.end; begin += batch) {
    check_cancelled();
    const Batch samples = data.read(begin, std::min(begin + batch, range.end), options.pool);
    body(samples);
    step.advance(samples.count);
  }
}

std::vector<std::int64_t> largest_outputs(const Tensor& outputs) {
  const Tensor floats = to_float32(outputs.view());
  const std::int64_t n = floats.dims().empty() ? 1 : floats.dims()[0];
  const std::int64_t classes = n == 0 ? 0 : floats.size() / n;
  std::vector<std::int64_t> best(static_cast<std::size_t>(n), 0);
  for (std::int64_t i = 0; i < n; ++i) {
    const float* row = floats.as<float>() + i * classes;
    for (std::int64_t j = 1; j < classes; ++j)
      if (row[j] > row[best[static_cast<std::size_t>(i)]]) best[static_cast<std::size_t>(i)] = j;
  }
  return best;
}

}  // namespace

namespace {

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
  Runner reference_run(reference, as_float, options.pool);
  std::optional<Runner> fake_run, integer_run;
  if (fake) fake_run.emplace(candidate, as_float, options.pool);
  if (integer) {
    integer_run.emplace(candidate, as_integer, options.pool);
    result.realized = integer_run->realized();
    // A model that no integer kernel takes (FP8, weights only) would run the same way twice.
    if (fake && !any_kernel(result.realized)) {
      integer = false;
      integer_run.reset();
    }
  }

  Scorer reference_score(options.metrics, false), fake_score(options.metrics, true),
      integer_score(options.metrics, true);
  std::vector<Comparison> between;
  each_batch(data, {0, data.sample_count()}, options, "evaluating", [&](const Batch& batch) {
    const std::vector<Tensor> want = reference_run.run(batch.inputs);
    reference_score.add(want, batch.labels, nullptr);
    std::vector<Tensor> by_fake, by_integer;
    if (fake) fake_score.add(by_fake = fake_run->run(batch.inputs), batch.labels, &want);
    if (integer) integer_score.add(by_integer = integer_run->run(batch.inputs), batch.labels, &want);
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
  Runner run(graph, lower, options.pool);
  Scorer score(options.metrics, false);
  each_batch(data, {0, data.sample_count()}, options, "evaluating",
             [&](const Batch& batch) { score.add(run.run(batch.inputs), batch.labels, nullptr); });
  return score.values();
}

std::vector<Tensor> collect_outputs(const Graph& graph, Dataset& data, SampleRange range,
                                    const EvaluateOptions& options) {
  LowerOptions lower;
  lower.integer = options.arithmetic == Arithmetic::kInteger;
  Runner run(graph, lower, options.pool);
  std::vector<Tensor> all;
  each_batch(data, range, options, "scoring", [&](const Batch& batch) {
    const std::vector<Tensor> outputs = run.run(batch.inputs);
    if (all.empty()) {
      for (const Tensor& output : outputs) {
        Dims dims = output.dims();
        if (dims.empty() || dims[0] != batch.count)
          fail(ErrorCode::kUnsupported, "an output of shape {} does not count samples in its first dimension",
               to_string(dims));
        dims[0] = range.end - range.begin;
        all.push_back(Tensor::allocate(output.dtype(), dims));
      }
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const std::int64_t size = outputs[i].bytes() / batch.count;
      if (all[i].bytes() != size * (range.end - range.begin))
        fail(ErrorCode::kUnsupported, "the shape of output {} changes from batch to batch", i);
      std::memcpy(all[i].mut<std::byte>() + (batch.begin - range.begin) * size, outputs[i].data(),
                  static_cast<std::size_t>(outputs[i].bytes()));
    }
  });
  return all;
}

double output_sqnr_db(const std::vector<Tensor>& reference, const std::vector<Tensor>& candidate) {
  double least = HUGE_VAL;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    Comparison comparison;
    comparison.add(reference[i].view(), candidate.at(i).view());
    if (std::isnan(comparison.sqnr_db())) return std::nan("");
    least = std::min(least, comparison.sqnr_db());
  }
  return least;
}

}  // namespace pare
