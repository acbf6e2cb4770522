// Conversion between opsets, up and down.
//
// The reader has raised the graph to the newest form already, so up is only a number. Down, the writer's
// rules (lower.h) say what an opset holds; a node that it does not hold is replaced by nodes of the same
// meaning: transposes around a Softmax, Gather for a stepped Slice, Max and Min for a Clip whose bounds are
// computed, arithmetic for a scale a channel, and the function bodies by which ONNX defines Gelu,
// LayerNormalization, GroupNormalization, RMSNormalization, Attention and others. Subgraphs included.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "engine/ir/graph.h"

namespace pare {

struct ConvertOpsetReport {
  int from = 0, to = 0;
  bool folded = false;  // constants and shapes were folded first: some node's pads, axes, ... were computed
  std::map<std::string, std::int64_t> replaced;  // operator: nodes of it that others stand for now
};

// Afterwards write_onnx gives exactly this opset. Errors: kUsage for an opset that cannot be written;
// kUnsupported naming the node and what the opset lacks, and from which opset on it would go. After an error
// the graph is as it was.
ConvertOpsetReport convert_opset(Graph& graph, int opset);

}  // namespace pare
