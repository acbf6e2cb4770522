// What changed between two runs: from their reports alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "eval/report.h"

namespace pare {

struct ChangedValue {  // of a metric, a size, a prediction's measured side, a time
  std::string name;
  std::optional<double> a, b;
};
struct ChangedText {  // provenance, verdict, chosen candidate
  std::string name, a, b;
};
struct ChangedLayer {  // one tensor or layer
  std::string name;
  std::string a, b;  // "int8, per channel, mse", "float: quantize.ignore says so", "" where it does not exist
};
struct ChangedDrift {  // the same value of both models against its float twin
  std::string name, op;
  double sqnr_db_a = 0, sqnr_db_b = 0;
};

struct RunComparison {
  std::vector<ChangedValue> metrics, sizes;  // all of them, equal ones too
  std::vector<ChangedValue> seconds;         // by stage
  std::vector<ChangedText> provenance;       // only what differs
  std::vector<ChangedLayer> quantized;       // only what differs
  std::vector<ChangedDrift> layers;          // in both, the largest loss from a to b first
  std::vector<ChangedText> gates;            // "passed (0.001 <= 0.005)"
  bool same_result() const { return provenance.empty() && quantized.empty(); }
};

RunComparison compare_runs(const Report& a, const Report& b);

}  // namespace pare
