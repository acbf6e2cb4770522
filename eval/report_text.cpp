// How numbers look in reports for people.
#include <cmath>

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
