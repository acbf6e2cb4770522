// What a graph computes, as one number: SHA-256 over inputs, outputs, nodes in order, attributes and
// constants.
//
// Names of values count (statistics and quantization plans speak of values by name), node names, metadata,
// opset and the layout of the file do not. Reading a file twice, or a file that pare wrote from the graph,
// gives the same hash; so does a file with Constant nodes in place of initializers. Constants are hashed by
// content.
#pragma once

#include "engine/base/sha256.h"
#include "engine/ir/graph.h"

namespace pare {

Digest graph_hash(const Graph& graph);

}  // namespace pare
