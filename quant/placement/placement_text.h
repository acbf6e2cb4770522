// A placement as a text that people read and tests compare: each Q with the rule behind it.
#pragma once

#include <string>

#include "quant/placement/placement.h"

namespace pare::quant {

// The rules that were used (ids as in docs/placement.md), then a line for each activation (in graph order of
// their values), weight, bias and node left alone:
//   Q  NAME  format  rule  [group]  <- readers
//   W  NAME  format  axis  <- readers
//   B  NODE
//   -  NODE  reason
std::string placement_text(const Graph& graph, const Placement& placement);

}  // namespace pare::quant
