// A subgraph's nodes put into the graph around it.
#pragma once

#include <map>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

// Copies the body's nodes and constants in front of `owner`, a node of `graph`. `inputs` (one for each input
// of the body) and the owner's captured inputs stand for the body's. Returns what each output of the body is
// now: a copy, an input or a capture. The owner stays.
std::vector<ValueId> inline_graph(Graph& graph, NodeId owner, const Graph& body,
                                  const std::vector<ValueId>& inputs);

// Whether two values may be one by the shapes that they have or are declared with. A file may declare inside
// of a subgraph what the values outside contradict, where inference cannot know yet; such a subgraph stays.
bool may_be_one(const Value& a, const Value& b);

// Takes `owner` out; each output reads `results` through an Identity, so it keeps its name
// (remove_identity takes the Identity out where it can).
void replace_by_identities(Graph& graph, NodeId owner, const std::vector<ValueId>& results);

}  // namespace pare
