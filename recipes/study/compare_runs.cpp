#include "recipes/study/compare_runs.h"

#include <algorithm>
#include <map>

#include "engine/base/error.h"

namespace pare {
namespace {

// Both lists by name, in the order of the first, what only the second has behind it.
template <typename Value>
std::vector<std::string> all_names(const std::vector<std::pair<std::string, Value>>& a,
                                   const std::vector<std::pair<std::string, Value>>& b) {
  std::vector<std::string> names;
  for (const auto* list : {&a, &b})
    for (const auto& [name, value] : *list)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  return names;
}

template <typename Value>
std::optional<Value> value_of(const std::vector<std::pair<std::string, Value>>& list,
                              const std::string& name) {
  for (const auto& [key, value] : list)
    if (key == name) return value;
  return std::nullopt;
}

using Numbers = std::vector<std::pair<std::string, double>>;
using Texts = std::vector<std::pair<std::string, std::string>>;

std::vector<ChangedValue> numbers(const Numbers& a, const Numbers& b) {
  std::vector<ChangedValue> rows;
  for (const std::string& name : all_names(a, b))
    rows.push_back({name, value_of(a, name), value_of(b, name)});
  return rows;
}

std::vector<ChangedText> differing(const Texts& a, const Texts& b) {
  std::vector<ChangedText> rows;
  for (const std::string& name : all_names(a, b)) {
    const std::string left = value_of(a, name).value_or(""), right = value_of(b, name).value_or("");
    if (left != right) rows.push_back({name, left, right});
  }
  return rows;
}

Numbers metrics_of(const Report& report) {
  Numbers list;
  for (const ReportMetric& metric : report.metrics) {
    list.emplace_back(metric.name, metric.candidate);
    if (metric.integer) list.emplace_back(metric.name + " (integer)", *metric.integer);
  }
  return list;
}

Numbers seconds_of(const Report& report) {
  Numbers list;
  for (const ReportStage& stage : report.stages) list.emplace_back(stage.name, stage.seconds);
  return list;
}

Texts gates_of(const Report& report) {
  Texts list;
  for (const ReportGate& gate : report.gates)
    list.emplace_back(fmt::format("{} {} {:.6g}", gate.metric, gate.relation, gate.limit),
                      fmt::format("{} ({:.6g})", gate.passed ? "passed" : "failed", gate.value));
  return list;
}

// What was decided for each tensor and layer.
Texts decisions_of(const Report& report) {
  Texts list;
  for (const ReportQuantized& q : report.quantized) {
    std::string text = fmt::format("{}, per {}", q.format, q.granularity);
    if (!q.method.empty()) text += ", " + q.method;
    if (q.kind == "activation")
      text += fmt::format(", [{:.5g}, {:.5g}]", q.low, q.high);
    else if (q.sqnr_db)
      text += fmt::format(", {:.2f} dB", *q.sqnr_db);
    list.emplace_back(q.tensor, text);
  }
  for (const ReportSkipped& row : report.skipped) list.emplace_back(row.tensor, "float: " + row.why);
  for (const ReportTable& table : report.tables)
    if (table.title == "Candidates" && table.chosen >= 0)
      list.emplace_back("(candidate)", table.rows[static_cast<std::size_t>(table.chosen)][0]);
  return list;
}

}  // namespace

RunComparison compare_runs(const Report& a, const Report& b) {
  RunComparison c;
  c.metrics = numbers(metrics_of(a), metrics_of(b));
  c.sizes = numbers(a.sizes, b.sizes);
  c.seconds = numbers(seconds_of(a), seconds_of(b));
  c.provenance = differing(a.provenance, b.provenance);
  for (const ChangedText& row : differing(decisions_of(a), decisions_of(b)))
    c.quantized.push_back({row.name, row.a, row.b});
  const Texts left = gates_of(a), right = gates_of(b);
  for (const std::string& name : all_names(left, right))
    c.gates.push_back({name, value_of(left, name).value_or(""), value_of(right, name).value_or("")});
  std::map<std::string, const ReportLayer*> there;
  for (const ReportLayer& layer : b.layers) there[layer.name] = &layer;
  for (const ReportLayer& layer : a.layers) {
    const auto it = there.find(layer.name);
    if (it != there.end()) c.layers.push_back({layer.name, layer.op, layer.sqnr_db, it->second->sqnr_db});
  }
  std::stable_sort(c.layers.begin(), c.layers.end(), [](const ChangedDrift& x, const ChangedDrift& y) {
    return x.sqnr_db_a - x.sqnr_db_b > y.sqnr_db_a - y.sqnr_db_b;
  });
  return c;
}

}  // namespace pare
