// Node::fallback is a graph that computes what its node computes, for the case that no kernel takes it.
//
// Its inputs are the node's inputs that are present, in order; its outputs the node's outputs that are
// wanted. A pass may change the node afterwards (another attribute, an input taken away): then the body no
// longer stands for it, and is not used. The signature in Graph::name tells.
#pragma once

#include <string>

#include "engine/ir/graph.h"

namespace pare {

// Operator, attributes, which inputs are present and which outputs wanted.
std::string fallback_signature(const Node& node);

// True when there is a fallback and it stands for the node as it is now.
bool has_valid_fallback(const Node& node);

}  // namespace pare
