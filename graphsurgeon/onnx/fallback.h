// Function bodies for operators that this build has no kernel for.
#pragma once

#include "engine/ir/graph.h"

namespace pare {

// Gives each node whose types no CPU kernel takes the body that ONNX defines for its operator (by a function,
// context-dependent ones included), as Node::fallback (engine/ir/fallback.h). Subgraphs included. Shapes must
// be inferred; unknown sizes count as 2 when kernels are asked. Returns how many got one. What ONNX defines
// by no body stays as it is, and a run says what is missing.
int attach_fallbacks(Graph& graph);

}  // namespace pare
