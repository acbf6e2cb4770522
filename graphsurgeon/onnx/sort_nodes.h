// Nodes of a file in topological order. Internal to graphsurgeon/onnx.
#pragma once

#include "graphsurgeon/onnx/proto.h"

namespace pare {

// ONNX asks for producers before consumers (subgraphs that capture included), and some tools forget it: where
// the order is wrong the nodes are sorted, keeping the file's order as far as it goes. Subgraphs too. Linear
// for files in order. Error kBadFile naming the nodes of a cycle.
void sort_nodes(onnx::GraphProto& graph);

}  // namespace pare
