// A graph as JSON, for engine files: the lowered graph of a CPU engine, or the graph that plans for further
// shapes are made from. Values, nodes, attributes, subgraphs and fallbacks; names, origins and symbols are
// kept. Unused values are left out, so ids may change; to_text() of what is read equals that of what was
// written.
//
// Tensors lie elsewhere: `keep` stores one and returns its reference, `find` gives it back. String tensors
// stand in the JSON.
#pragma once

#include <functional>
#include <string>

#include "engine/base/json_fwd.h"
#include "engine/ir/graph.h"

namespace pare {

using KeepTensor = std::function<std::string(const Tensor&)>;
using FindTensor = std::function<Tensor(const std::string& reference, DType dtype, const Dims& dims)>;

Json graph_to_json(const Graph& graph, const KeepTensor& keep);
// Verified (engine/ir/graph.h). Error kBadFile or kUnsupported naming `what`, whatever the JSON holds.
Graph graph_from_json(const Json& json, const FindTensor& find, const std::string& what);

}  // namespace pare
