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

#include "engine/base/limits.h"
#include "engine/ir/graph.h"
#include "graphsurgeon/onnx/external_data_options.h"

namespace pare {

// A protobuf message ends at 2 GB; this much of it may be weights.
inline constexpr std::int64_t kInlineLimit =
    static_cast<std::int64_t>(limits::kMaxProtobufBytes) - (std::int64_t{64} << 20);

struct WriteOptions {
  // ai.onnx, 7 to 27; 0: the graph's own (7 at least), or 21 for a graph that was never in a file.
  int opset = 0;
  // Where large constants go (external_store.h). With kNone they go into one file all the same when there are
  // more bytes of constants than `inline_limit`, and the report says so.
  ExternalOptions external;
  std::int64_t inline_limit = kInlineLimit;
};

struct WriteReport {
  int opset = 0, ir_version = 0;
  int asked = 0;                      // WriteOptions::opset with 0 resolved
  std::vector<std::string> why;       // what differs from what was asked: a newer opset, external data
  std::uint64_t bytes = 0;            // of the model file
  std::vector<std::string> external;  // files of weights beside it
  std::int64_t external_bytes = 0;
};

// Written to a temporary name, checked, renamed. Errors: kUsage (opset out of range, a bad name for the file
// of weights), kUnsupported (a node that no opset holds), kDevice (disk), kInternal (the checker refuses what
// we made).
WriteReport write_onnx(const Graph& graph, const std::string& path, const WriteOptions& options = {});

// The same bytes in memory, checked. `report` may be null. Error kUnsupported above `inline_limit`.
std::string onnx_bytes(const Graph& graph, const WriteOptions& options = {}, WriteReport* report = nullptr);

}  // namespace pare
