// What `pare quantize` says about its result, whichever way it was made.
#pragma once

#include <cstdint>
#include <string>

#include "cli/command.h"
#include "quant/audit.h"
#include "recipes/quantize/quantize_model.h"

namespace pare {

// `quantized`, `skipped`, `tables`, `method` of the document, the plan's warnings, and a line.
void report_quantized(Context& context, const QuantizeOutcome& outcome, const std::string& method);
// Bytes of weights before and after, and bits a weight.
void report_sizes(Context& context, std::int64_t before, std::int64_t after, std::int64_t parameters);
// `audit` of the document, and the first ten differences.
void report_audit(Context& context, const quant::AuditResult& audit);

}  // namespace pare
