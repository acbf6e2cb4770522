// Lowers a node from the newest form to an older ai.onnx opset: the inverse of raise.h, and the question
// from which opset on a node can be written at all.
//
// What an opset can hold is asked of onnx's own schemas (operator, attributes, number and types of inputs
// and outputs); rules here cover what is written differently: axes, split, k, min and max as attributes,
// Softmax of opsets below 13, roi and scales of Resize, one-element scales of Quantize/DequantizeLinear
// below 13, Upsample and Scatter, zeros for Gemm's missing C.
#pragma once

#include <functional>
#include <string>

#include "engine/ir/graph.h"
#include "graphsurgeon/onnx/proto.h"

namespace pare {

struct LowerCall {
  const Graph& graph;
  const Node& node;
  int opset;
  onnx::NodeProto& proto;  // in: the newest form; out: the form of `opset`
  std::function<std::string(const char* what, Tensor)> constant;  // adds an initializer, gives its name
};

// "" or why `opset` cannot hold the node ("axes are computed"). Other domains than ai.onnx pass as they are.
std::string lower(LowerCall& call);

// The same answer without the form; subgraphs are not looked into.
std::string why_not(const Graph& graph, const Node& node, int opset);

// The smallest opset >= wanted that holds the node (subgraphs included), and in `why` what asked for more.
// Error kUnsupported when none does.
int needed_opset(const Graph& graph, const Node& node, int wanted, std::string& why);

// The oldest IR version that goes with an opset, and with an element type.
int ir_version_of_opset(int opset);

}  // namespace pare
