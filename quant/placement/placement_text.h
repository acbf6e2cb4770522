// A placement as a text that people read and tests compare: each Q with the rule behind it.
#pragma once

#include <string>

#include "quant/placement/placement.h"

namespace pare::quant {

// Why a pair stands where it does. The ids are those of docs/placement.md.
struct PlacementRule {
  const char* id;
  const char* says;
  const char* source;  // where the rule comes from: onnx.md is the project's collection of ONNX facts
};
const PlacementRule& rule_behind(const ActivationSite& site);
const PlacementRule& rule_behind_group();   // sites that share a scale
const PlacementRule& rule_behind_weight();  // codes of a weight

// The rules that were used, then a line for each activation (in graph order of their values), weight, bias
// and node left alone:
//   Q  NAME  format  rule  [group]  <- readers
//   W  NAME  format  axis  <- readers
//   B  NODE
//   -  NODE  reason
std::string placement_text(const Graph& graph, const Placement& placement);

}  // namespace pare::quant
