#include "cli/summary.h"

#include <algorithm>

#include "engine/base/error.h"
#include "eval/report_render.h"

namespace pare {

void print_summary(Context& context, const Report& r) {
  context.print(r.verdict);
  if (!r.metrics.empty()) {
    const bool integer = std::any_of(r.metrics.begin(), r.metrics.end(),
                                     [](const ReportMetric& m) { return m.integer.has_value(); });
    const auto column = [&](const std::string& text) { return integer ? fmt::format(" {:>14}", text) : ""; };
    context.print(fmt::format("\n  {:<18} {:>14} {:>14}{} {:>12}", fmt::format("{} samples", r.samples),
                              "reference", "quantized", column("integer"), "drop"));
    for (const ReportMetric& m : r.metrics) {
      const auto show = [&](const std::optional<double>& value) {
        return value ? metric_text(m.name, *value) : "";
      };
      context.print(fmt::format("  {:<18} {:>14} {:>14}{} {:>12}", m.name, show(m.reference),
                                metric_text(m.name, m.candidate), column(show(m.integer)), show(m.drop)));
    }
    context.print("");
  }
  for (const ReportGate& g : r.gates)
    context.print(fmt::format("  gate   {} {} {} {}", g.passed ? "passed " : "FAILED ", g.metric, g.relation,
                              number_text_short(g.limit)) +
                  fmt::format(" (it is {})", metric_text(g.metric, g.value)));
  if (r.audit) {
    context.print(fmt::format("  audit  {} {} tensors read back and compared",
                              r.audit->passed ? "passed " : "FAILED ", r.audit->tensors));
    for (std::size_t i = 0; i < r.audit->mismatches.size() && i < 10; ++i)
      context.print("         " + r.audit->mismatches[i]);
  }
}

}  // namespace pare
