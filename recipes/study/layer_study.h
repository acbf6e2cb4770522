// What `pare sensitivity`, `search` and `bisect` share: the layers that a spec quantizes, and a judge of
// candidates.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "eval/evaluate.h"
#include "eval/metric_table.h"
#include "recipes/quantize/layer_grams.h"
#include "recipes/quantize/layer_journal.h"
#include "recipes/quantize/quantize_model.h"

namespace pare {

struct SensitivityInput {
  const Graph* graph = nullptr;    // float, simplified
  std::vector<TensorStats> stats;  // of values_to_watch for every scheme that is tried
  Dataset* data = nullptr;         // judged on all of it
  Dataset* calibration = nullptr;  // for methods that look at the layers' inputs; may be null without them
  ThreadPool* pool = nullptr;
  Progress* progress = nullptr;
  std::string metric = "output_sqnr_db";
};

struct StudyLayer {
  std::string label, rule_name;  // for people (behind its path); what a rule calls it
  std::string format;            // of its weight, or of its activations where it has none
  std::int64_t weights = 0;      // elements
};

// The linear layers that a spec quantizes, in graph order, inside subgraphs too.
std::vector<StudyLayer> study_layers(const Graph& graph, const quant::Spec& spec);

// A rule for the layer of that name (or 're:PATTERN') alone.
quant::Rule rule_for(const std::string& name, bool quantize);

// Judges candidates against the float model on the same data; its outputs are computed once.
class StudyJudge {
 public:
  // `choices`: of which every candidate has a part; what their methods ask of the calibration data is
  // collected here, once. Errors: kUsage for an unknown metric, or a method that asks and has no data.
  StudyJudge(const SensitivityInput& input, const QuantizeChoices& choices);

  struct Verdict {
    double metric = 0, drop = 0,
           sqnr_db = 0;  // drop: 0 where the metric has no value of the float model's own
  };
  Verdict judge(const Graph& candidate);

  // Of the last judgement; infinity before, and for metrics that compare two models.
  double float_metric() const { return float_metric_; }
  bool is_at_least(double metric, double limit) const {
    return info_->higher_is_better ? metric >= limit : metric <= limit;
  }
  bool is_better(double a, double b) const { return info_->higher_is_better ? a > b : a < b; }

  // One candidate, no trial: ranges by least expected error and weights by search where the choices say
  // `auto`, codes solved for what layers read in the float model where they say `inputs: quantized`. A layer
  // whose inputs and neighbours are as in an earlier candidate has the codes that it had there.
  QuantizeOutcome quantize(QuantizeChoices choices) const;

 private:
  SampleRange all() const { return {0, in_.data->sample_count()}; }
  void look_at_data(const QuantizeChoices& choices);

  const SensitivityInput& in_;
  const MetricInfo* info_ = nullptr;
  EvaluateOptions options_;
  BatchOutputs reference_;
  double float_metric_ = std::numeric_limits<double>::infinity();
  bool looks_ = false;  // methods ask for calibration data
  LayerGrams grams_;
  std::unique_ptr<LayerJournal> journal_ = LayerJournal::in_memory();
};

}  // namespace pare
