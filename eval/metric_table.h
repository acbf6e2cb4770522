// Every metric by name: which way is better, what it needs. One table for the evaluation, gates, recipes,
// reports and `pare eval --help`.
#pragma once

#include <string>
#include <vector>

namespace pare {

// What a metric needs of the data set beside its samples: class numbers; texts and an alphabet; `boxes`;
// windows of tokens.
enum class MetricNeeds { kNothing, kLabels, kTexts, kBoxes, kTokens };

struct MetricInfo {
  const char* name;
  bool higher_is_better;
  bool absolute;  // a property of one model (top1), so a drop against the reference means something;
                  // false: already a comparison with the reference (output_sqnr_db)
  MetricNeeds needs;
  bool implemented;  // false: known to the grammar, kUnsupported when asked for
  const char* what;  // one line with its unit
};

const std::vector<MetricInfo>& metric_table();
const MetricInfo* find_metric(const std::string& name);  // nullptr when unknown
std::vector<const char*> metric_names();

// What a gate looks at: "top1" itself, "top1_drop", "top1_drop_rel".
enum class GateKind { kValue, kDrop, kDropRelative };
struct GateMetric {
  const MetricInfo* metric;  // nullptr: no metric has that name
  GateKind kind;
};
// What to do about a name that is no metric: the one that is meant, or all.
std::string metric_hint(const std::string& name);
GateMetric parse_gate_metric(const std::string& name);
// What to do about a name that is none: the nearest one; "perplexity_increase" is meant as a drop.
std::string gate_metric_hint(const std::string& name);

// How much worse `candidate` is than `reference`: positive when worse, whichever direction is better.
// Relative: divided by |reference|; 0/0 is 0. NaN on either side gives NaN.
double metric_drop(const MetricInfo& metric, GateKind kind, double reference, double candidate);
// The candidate's value whose drop is `drop`: a gate's limit as the metric itself.
double metric_at_drop(const MetricInfo& metric, GateKind kind, double reference, double drop);

}  // namespace pare
