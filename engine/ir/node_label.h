// How messages name a node.
#pragma once

#include <string>

#include "engine/ir/graph.h"

namespace pare {

inline std::string label(const Node& node) {
  return node.name.empty() ? "a " + node.op + " without a name"
                           : "node '" + node.name + "' (" + node.op + ")";
}

}  // namespace pare
