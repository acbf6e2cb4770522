// Graphs into ONNX files.
//
// Nodes are lowered to the opset asked for (lower.h). An opset that cannot hold a node is raised as far as
// needed, and the report says which node asked for it and why. Names of inputs, outputs, values and nodes
// stay. The bytes depend on the graph and the options only: no time, path or host. metadata_props holds
// Graph::metadata and "pare.version". What goes out has passed onnx.checker with full_check.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

struct WriteOptions {
  int opset =
      0;  // ai.onnx, 7 to 27; 0: the graph's own (7 at least), or 21 for a graph that was never in a file
};

struct WriteReport {
  int opset = 0, ir_version = 0;
  int asked = 0;                 // WriteOptions::opset with 0 resolved
  std::vector<std::string> why;  // what raised the opset above `asked`, in order; empty if nothing did
  std::uint64_t bytes = 0;
};

// Written to a temporary name, checked, renamed. Errors: kUsage (opset out of range), kUnsupported (a node
// that no opset holds; more than 2 GB of constants), kDevice (disk), kInternal (the checker refuses what we
// made).
WriteReport write_onnx(const Graph& graph, const std::string& path, const WriteOptions& options = {});

// The same bytes in memory, checked. `report` may be null.
std::string onnx_bytes(const Graph& graph, const WriteOptions& options = {}, WriteReport* report = nullptr);

}  // namespace pare
