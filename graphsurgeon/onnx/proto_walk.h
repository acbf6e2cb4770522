// Every tensor of a model that may carry weights: initializers and the values of Constant nodes, subgraphs
// and model-local functions included. Internal to graphsurgeon/onnx.
#pragma once

#include <functional>

#include "graphsurgeon/onnx/proto.h"

namespace pare {

enum class TensorPlace {
  kInitializer,
  kConstant,   // attribute `value` of a Constant node of a graph
  kFunction,   // the same inside a model-local function
  kAttribute,  // any other attribute: ConstantOfShape's value
};

using TensorVisitor = std::function<void(onnx::TensorProto&, TensorPlace)>;

void for_each_tensor(onnx::GraphProto& graph, const TensorVisitor& visit, bool in_function = false);
void for_each_tensor(onnx::ModelProto& model, const TensorVisitor& visit);

}  // namespace pare
