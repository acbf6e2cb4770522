#include <charconv>
#include <cmath>

#include "engine/base/error.h"
#include "eval/evaluate.h"
#include "eval/metric_table.h"

namespace pare {

GateResult judge(const GateLimit& gate, const MetricValues& candidate, const MetricValues& reference,
                 const MetricValues* baseline, std::int64_t not_finite_candidate) {
  const GateMetric parsed = parse_gate_metric(gate.metric);
  if (parsed.metric == nullptr)
    throw make_error(ErrorCode::kUsage, "there is no metric '{}'", gate.metric)
        .hint(gate_metric_hint(gate.metric));
  const std::string name = parsed.metric->name;
  const auto value = candidate.find(name);
  if (value == candidate.end())
    throw make_error(ErrorCode::kUsage, "a gate on {}, but {} is not computed", gate.metric, name)
        .hint(fmt::format("add the metric {}", name));
  GateResult result;
  result.gate = gate;
  result.value = value->second;
  if (parsed.kind != GateKind::kValue) {
    const MetricValues& from = baseline != nullptr ? *baseline : reference;
    const auto base = from.find(name);
    if (base == from.end())
      throw make_error(ErrorCode::kUsage, "{} has nothing to be measured from", gate.metric)
          .hint(baseline != nullptr ? fmt::format("the baseline report has no {}", name)
                                    : "give a reference model or a baseline report");
    result.value = metric_drop(*parsed.metric, parsed.kind, base->second, value->second);
    result.against = baseline != nullptr ? "baseline" : "reference";
  }
  const bool holds = gate.at_most ? result.value <= gate.limit : result.value >= gate.limit;
  result.passed = holds && not_finite_candidate == 0;  // comparisons with NaN are false
  return result;
}

GateLimit parse_gate(const std::string& text) {
  const auto refuse = [&](const std::string& example = "top1_drop<=0.005") {
    throw make_error(ErrorCode::kUsage, "'{}' is no gate", text)
        .hint(fmt::format("write METRIC<=NUMBER or METRIC>=NUMBER, for example {}", example));
  };
  std::size_t at = text.find("<=");
  GateLimit gate;
  gate.at_most = at != std::string::npos;
  if (!gate.at_most) at = text.find(">=");
  if (at == std::string::npos || at == 0) refuse();
  const auto trim = [](std::string part) {
    const std::size_t first = part.find_first_not_of(' ');
    const std::size_t last = part.find_last_not_of(' ');
    return first == std::string::npos ? std::string() : part.substr(first, last - first + 1);
  };
  gate.metric = trim(text.substr(0, at));
  const std::string number = trim(text.substr(at + 2));
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), gate.limit);
  if (error == std::errc() &&
      number.compare(static_cast<std::size_t>(end - number.data()), std::string::npos, "%") == 0)
    refuse(fmt::format("{}{}{} (shares are fractions)", gate.metric,
                       gate.at_most ? "<=" : ">=", gate.limit / 100));
  if (error != std::errc() || end != number.data() + number.size() || !std::isfinite(gate.limit)) refuse();
  if (parse_gate_metric(gate.metric).metric == nullptr)
    throw make_error(ErrorCode::kUsage, "there is no metric '{}'", gate.metric)
        .hint(gate_metric_hint(gate.metric));
  return gate;
}

void check_gate(const GateLimit& gate, bool reference, bool baseline) {
  const GateMetric parsed = parse_gate_metric(gate.metric);
  if (parsed.metric == nullptr || parsed.kind == GateKind::kValue || baseline) return;
  const char* name = parsed.metric->name;
  if (!parsed.metric->absolute)
    throw make_error(ErrorCode::kUsage,
                     "{} already compares with the reference, so {} needs a baseline report", name,
                     gate.metric)
        .hint(fmt::format("add --baseline REPORT, or use a gate on {}", name));
  if (!reference)
    throw make_error(ErrorCode::kUsage, "{} has nothing to be measured from", gate.metric)
        .hint("add --reference MODEL (a reference model) or --baseline REPORT");
}

}  // namespace pare
