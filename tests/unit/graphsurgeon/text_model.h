// Small models for tests, in the text form of onnx's parser:
//   <ir_version: 8, opset_import: ["": 17]> g (float[N,3] x) => (float[N,3] y) <float[3] b = {1,2,3}> { y =
//   Add(x, b) }
#pragma once

#include <string>

#include "engine/ir/graph.h"

namespace pare {

std::string text_model_bytes(const std::string& text);  // a serialized ModelProto
Graph read_bytes(const std::string& bytes);             // read_onnx_bytes without folder
Graph text_model(const std::string& text);              // both

// "g (...) => (...) {...}" with the usual head for an opset.
Graph text_graph(int opset, const std::string& graph);

// to_text with generated names of values and constants kept out: two graphs that differ in them are equal.
std::string canonical_text(const Graph& graph);

}  // namespace pare
