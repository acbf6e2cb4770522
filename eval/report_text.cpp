// How numbers look in reports for people.
#include <cmath>
#include <vector>

#include "engine/base/error.h"
#include "eval/report_render.h"

namespace pare {

std::string number_text_short(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double size = std::fabs(value);
  if (size != 0 && (size < 1e-3 || size >= 1e6)) return fmt::format("{:.3g}", value);
  return fmt::format("{:.4g}", value);
}

std::string metric_text(const std::string& metric, double value) {
  if (!std::isfinite(value)) return number_text_short(value);
  if (metric.find("_db") != std::string::npos) return fmt::format("{:.2f} dB", value);
  if (metric.rfind("top1", 0) == 0 || metric.rfind("top5", 0) == 0) return fmt::format("{:.4f}", value);
  if (metric.find("cosine") != std::string::npos) return fmt::format("{:.6f}", value);
  return number_text_short(value);
}

std::string verdict_text(const Report& report) {
  std::vector<std::string> parts;
  for (const ReportMetric& m : report.metrics) {
    if (!m.reference) continue;
    parts.push_back(fmt::format("{} {} (reference {})", m.name, metric_text(m.name, m.candidate),
                                metric_text(m.name, *m.reference)));
    break;
  }
  for (const ReportMetric& m : report.metrics)
    if (m.name == "output_sqnr_db" || (parts.empty() && &m == &report.metrics.back()))
      parts.push_back(fmt::format("{} {}", m.name, metric_text(m.name, m.candidate)));
  double before = 0, after = 0;
  for (const auto& [name, value] : report.sizes) {
    if (name == "weight_bytes_before") before = value;
    if (name == "weight_bytes_after") after = value;
  }
  if (before > 0 && after > 0) parts.push_back(fmt::format("weights {:.2f} times smaller", before / after));
  std::size_t failed = 0;
  for (const ReportGate& gate : report.gates) failed += gate.passed ? 0 : 1;
  if (failed > 0)
    parts.push_back(fmt::format("{} of {} gates failed", failed, report.gates.size()));
  else if (!report.gates.empty())
    parts.push_back(report.gates.size() == 1 ? "the gate passed" : "all gates passed");
  if (report.audit && !report.audit->passed) parts.push_back("the audit of the written file failed");
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  while (std::fabs(bytes) >= 1000 && unit < 4) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

}  // namespace pare
