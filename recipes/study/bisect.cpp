#include "recipes/study/bisect.h"

#include "engine/base/cancel.h"
#include "engine/base/error.h"

namespace pare {
namespace {

using Verdict = StudyJudge::Verdict;

class Bisection {
 public:
  Bisection(const SensitivityInput& input, const BisectOptions& options)
      : options_(options),
        judge_(input, options.choices),
        layers_(study_layers(*input.graph, options.choices.spec)),
        is_float_(layers_.size(), false),
        progress_(input.progress != nullptr ? *input.progress : no_progress()) {
    if (layers_.empty())
      throw make_error(ErrorCode::kUsage, "no layer is quantized, so none is to blame")
          .hint("`pare quantize` lists why each was skipped");
  }

  LayerBisection run() {
    LayerBisection result;
    Verdict now = with_float(0, 0);
    result.quantized = now.metric;
    result.sqnr_db = now.sqnr_db;
    while (!judge_.is_at_least(now.metric, options_.least) &&
           result.layers.size() < static_cast<std::size_t>(options_.most) &&
           result.layers.size() < layers_.size()) {
      const std::size_t found = worst(now);
      is_float_[found] = true;
      const StudyLayer& layer = layers_[found];
      result.layers.push_back({layer.label, layer.rule_name, layer.format, now.metric, now.sqnr_db});
    }
    result.reached = judge_.is_at_least(now.metric, options_.least);
    result.reference = judge_.float_metric();
    result.candidates = candidates_;
    return result;
  }

 private:
  // With layers [begin, end) float too.
  Verdict with_float(std::size_t begin, std::size_t end) {
    check_cancelled();
    QuantizeChoices choices = options_.choices;
    for (std::size_t i = 0; i < layers_.size(); ++i)
      if (is_float_[i] || (i >= begin && i < end))
        choices.spec.rules.push_back(rule_for(layers_[i].rule_name, false));
    ++candidates_;
    return judge_.judge(judge_.quantize(choices).quantized);
  }

  bool wins(const Verdict& a, const Verdict& b) const {
    return a.metric != b.metric ? judge_.is_better(a.metric, b.metric) : a.sqnr_db > b.sqnr_db;
  }

  // The layer that a descent by halves ends at; `verdict`: of the model with it in float.
  std::size_t worst(Verdict& verdict) {
    std::vector<std::size_t> left;
    for (std::size_t i = 0; i < layers_.size(); ++i)
      if (!is_float_[i]) left.push_back(i);
    std::size_t begin = 0, end = left.size();
    std::int64_t levels = 0;
    for (std::size_t n = end; n > 1; n = (n + 1) / 2) ++levels;
    ProgressStep step(progress_, "halving", levels);
    if (end == 1) verdict = with_float(left[0], left[0] + 1);
    while (end - begin > 1) {
      // Layers that are float already may lie between: they are float in both halves.
      const std::size_t middle = begin + (end - begin + 1) / 2;
      const Verdict first = with_float(left[begin], left[middle - 1] + 1),
                    second = with_float(left[middle], left[end - 1] + 1);
      const bool is_second = wins(second, first);
      verdict = is_second ? second : first;
      (is_second ? begin : end) = middle;
      step.advance(1);
    }
    return left[begin];
  }

  const BisectOptions& options_;
  StudyJudge judge_;
  std::vector<StudyLayer> layers_;
  std::vector<bool> is_float_;
  std::int64_t candidates_ = 0;
  Progress& progress_;
};

}  // namespace

LayerBisection bisect_layers(const SensitivityInput& input, const BisectOptions& options) {
  if (options.most < 1)
    throw make_error(ErrorCode::kUsage, "--most counts layers, from 1").hint("for example --most 8");
  return Bisection(input, options).run();
}

}  // namespace pare
