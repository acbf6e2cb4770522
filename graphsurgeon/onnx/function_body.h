// The function body by which ONNX defines an operator, for one node: attributes, types and the optional
// inputs that it has are put in.
#pragma once

#include <memory>

#include "engine/ir/graph.h"

namespace pare {

// In the newest form, shapes inferred. `inputs` and `outputs` are those of the node that are present, in
// order. nullptr when ONNX has no body for the operator, or the body needs to know more (types, ranks) than
// is known.
std::shared_ptr<Graph> function_body(const Graph& graph, const Node& node);

// Puts `body` in the place of the node: its values and nodes are copied in front of it, the node goes.
void splice_body(Graph& graph, NodeId id, const Graph& body);

}  // namespace pare
