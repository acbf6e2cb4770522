// onnx's own checker behind our errors.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "graphsurgeon/onnx/proto.h"

namespace pare {

// Checks the nodes of a main graph one by one (attributes, arity, types of attributes; subgraphs whole), so
// that an error names the node. Error kBadFile with the checker's words. Tensors whose payload was
// taken out by strip_payloads pass.
void check_nodes(const onnx::ModelProto& model, const std::map<std::string, int>& opsets,
                 const std::string& file);

// full_check and strict shape inference of a whole model, for what is written. Error kInternal: what pare
// writes must pass.
void check_written(const onnx::ModelProto& model, const std::string& file);

}  // namespace pare
