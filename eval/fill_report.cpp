// From an Evaluation and gate results to the sections of a Report.
#include "engine/base/error.h"
#include "eval/evaluate.h"
#include "eval/metric_table.h"
#include "eval/report_render.h"

namespace pare {
namespace {

std::optional<double> find(const MetricValues& values, const std::string& name) {
  const auto found = values.find(name);
  if (found == values.end()) return std::nullopt;
  return found->second;
}

}  // namespace

void fill_report(Report& report, const Evaluation& e, const std::vector<std::string>& order) {
  report.samples = e.samples;
  report.layer_samples = e.layer_samples;
  report.not_finite = e.not_finite_reference + e.not_finite_candidate;
  for (const std::string& name : order) {
    const std::optional<double> value = find(e.candidate, name);
    if (!value) continue;
    ReportMetric metric;
    metric.name = name;
    metric.candidate = *value;
    metric.reference = find(e.reference, name);
    metric.integer = find(e.integer, name);
    if (metric.reference)
      metric.drop = metric_drop(*find_metric(name), GateKind::kDrop, *metric.reference, metric.candidate);
    report.metrics.push_back(std::move(metric));
  }
  for (const LayerDifference& layer : e.layers)
    report.layers.push_back({layer.name, layer.op, layer.sqnr_db, layer.cosine, layer.max_abs});
  for (const Realized& row : e.realized)
    report.realized.push_back({row.node, row.op, row.requested, row.realized, row.why});
  for (const ClipShare& clip : e.clipping)
    for (ReportQuantized& tensor : report.quantized)
      if (tensor.kind == "activation" && tensor.tensor == clip.tensor) tensor.clipped_share = clip.share;
  if (e.arithmetic_sqnr_db) {
    ReportTable table;
    table.title = "Fake quantization against integer kernels";
    table.note = "the same file run both ways: what it means, and what a processor computes";
    table.columns = {"figure", "value"};
    table.rows.push_back(
        {"SQNR between the two outputs", metric_text("output_sqnr_db", *e.arithmetic_sqnr_db)});
    table.rows.push_back({"samples whose largest output differs", std::to_string(e.arithmetic_top1_differs)});
    report.tables.push_back(std::move(table));
  }
  for (const auto& [what, seconds] :
       {std::pair<const char*, double>{"evaluation: reference", e.reference_seconds},
        {"evaluation: fake quantization", e.candidate_seconds},
        {"evaluation: integer kernels", e.integer_seconds}})
    if (seconds > 0) report.timings.push_back({what, seconds});
  if (e.not_finite_reference > 0)
    report.warnings.push_back(
        fmt::format("the reference gave {} NaN or infinite output values", e.not_finite_reference));
  if (e.not_finite_candidate > 0)
    report.warnings.push_back(fmt::format(
        "the quantized model gave {} NaN or infinite output values: no gate passes", e.not_finite_candidate));
}

void fill_gates(Report& report, const std::vector<GateResult>& results) {
  for (const GateResult& r : results)
    report.gates.push_back(
        {r.gate.metric, r.gate.at_most ? "<=" : ">=", r.gate.limit, r.value, r.passed, r.against});
}

}  // namespace pare
