// Why a layer of a finished run got its formats and scales, or none: what the report and the written model
// say of it, put together.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "eval/report.h"

namespace pare {

struct ExplainedInput {
  int slot = 0;
  std::string tensor;                        // of the source model
  std::string why_float;                     // "" when it has codes
  std::optional<ReportQuantized> quantized;  // none: float
  std::optional<ReportHistogram> seen;       // activations: what calibration saw
};

struct Explanation {
  std::string layer, op, output;
  std::vector<ExplainedInput> inputs;
  std::vector<ReportSkipped> skipped;    // rows of the report about this layer or its inputs
  std::vector<ReportRealized> realized;  // which kernel ran it
  std::optional<ReportLayer> measured;   // its output, float against quantized
  std::vector<std::string> sentences;    // the same for people
};

// `layer`: the name of a node or of a value that it computes, inside a subgraph behind its path
// ("If_0.then_branch/conv_out"). Error kUsage with the nearest name when there is none.
Explanation explain_layer(const Report& report, const Graph& written, const std::string& layer);

}  // namespace pare
