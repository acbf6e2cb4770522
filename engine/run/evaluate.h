// One node, right now: for constant folding and for preparing constants while lowering.
#pragma once

#include <vector>

#include "engine/ir/graph.h"

namespace pare {

// Runs the node on given inputs (empty tensors for those left out) with the first CPU kernel that takes
// it. Outputs in the node's order. Errors as in a run.
std::vector<Tensor> evaluate_node(const Graph& graph, const Node& node, const std::vector<Tensor>& inputs);

// The same with the last kernel that takes it: the plain reference. For tests of the others.
std::vector<Tensor> evaluate_node_by_reference(const Graph& graph, const Node& node,
                                               const std::vector<Tensor>& inputs);

// True when every input is a constant and the operator gives the same result each time.
bool is_foldable(const Graph& graph, const Node& node);

// The outputs of a foldable node, from the graph's constants.
std::vector<Tensor> evaluate_constant_node(const Graph& graph, const Node& node);

}  // namespace pare
