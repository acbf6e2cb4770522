#include "cli/quantize_report.h"

#include "engine/base/json.h"
#include "eval/report_render.h"
#include "recipes/plan_report.h"

namespace pare {

void report_quantized(Context& context, const QuantizeOutcome& outcome, const std::string& method) {
  Report report;
  report_outcome(report, outcome);
  for (const std::string& warning : report.warnings) context.warn(warning);
  Json whole = report_to_json(report);
  Json& json = context.document();
  for (const char* key : {"quantized", "skipped", "tables"}) json[key] = std::move(whole[key]);
  json["method"] = method;
  context.print(fmt::format("{} weights and {} activations quantized ({}), {} left in float",
                            outcome.plan.weights.size(), outcome.plan.activations.size(), method,
                            report.skipped.size()));
}

void report_sizes(Context& context, std::int64_t before, std::int64_t after, std::int64_t parameters) {
  Json& json = context.document();
  json["weight_bytes_before"] = before;
  json["weight_bytes_after"] = after;
  json["bits_per_weight"] =
      parameters == 0 ? 0 : 8.0 * static_cast<double>(after) / static_cast<double>(parameters);
  context.print(fmt::format("weights: {} -> {}", bytes_text(static_cast<double>(before)),
                            bytes_text(static_cast<double>(after))));
}

void report_audit(Context& context, const quant::AuditResult& audit) {
  Json mismatches = Json::array();
  for (const quant::Mismatch& mismatch : audit.mismatches)
    mismatches.push_back({{"tensor", mismatch.tensor}, {"what", mismatch.what}});
  context.document()["audit"] = {
      {"passed", audit.passed()}, {"tensors", audit.tensors}, {"mismatches", std::move(mismatches)}};
  context.print(fmt::format("audit: {} ({} tensors read back and compared)",
                            audit.passed() ? "passed" : "FAILED", audit.tensors));
  for (std::size_t i = 0; i < audit.mismatches.size() && i < 10; ++i)
    context.print("  " + audit.mismatches[i].tensor + ": " + audit.mismatches[i].what);
}

}  // namespace pare
