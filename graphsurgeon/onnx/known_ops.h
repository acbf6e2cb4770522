// Which operators can be read, and what to say about the others.
#pragma once

#include <string>

#include "graphsurgeon/onnx/proto.h"

namespace pare {

// Nodes of other domains than ai.onnx pass: they are kept, whether pare knows them or not.
// Error kUnsupported naming the operator, its domain and the opset, with the nearest known name, and whether
// ONNX defines it by a function body.
void check_known(const std::string& domain, const std::string& op, int opset);

// Replaces calls of model-local functions, and of operators that the IR does not know but ONNX defines by a
// function body, by their bodies. Error kBadFile: recursive functions, or more than
// limits::kMaxNodes nodes in the end. `directory` holds external data of Constants in functions.
void inline_functions(onnx::ModelProto& model, int opset, const std::string& directory);

}  // namespace pare
