// onnx's own checker behind our errors.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "graphsurgeon/onnx/proto.h"

namespace pare {

// Checks the nodes of a main graph one by one (attributes, arity, types of attributes; subgraphs whole), so
// that an error names the node. Error kBadFile with the checker's words. Tensors whose payload was
// taken out by strip_payloads or lies outside pass: their data and sizes are dropped from `model`.
void check_nodes(onnx::ModelProto& model, const std::map<std::string, int>& opsets, const std::string& file);

// full_check and strict shape inference of a whole model, for what is written. Error kInternal: what pare
// writes must pass. Inference is not strict where there is an If: a branch that is never taken may contradict
// the shapes outside. What lies in external data is looked at by type and shape only.
void check_written(const onnx::ModelProto& model, const std::string& file);

}  // namespace pare
