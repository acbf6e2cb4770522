#include "graphsurgeon/onnx/proto_walk.h"

namespace pare {
namespace {

void walk_node(onnx::NodeProto& node, const TensorVisitor& visit, bool in_function) {
  const bool constant = node.op_type() == "Constant" && (node.domain().empty() || node.domain() == "ai.onnx");
  const TensorPlace place = !constant     ? TensorPlace::kAttribute
                            : in_function ? TensorPlace::kFunction
                                          : TensorPlace::kConstant;
  for (auto& attribute : *node.mutable_attribute()) {
    if (attribute.has_t()) visit(*attribute.mutable_t(), place);
    for (auto& tensor : *attribute.mutable_tensors()) visit(tensor, TensorPlace::kAttribute);
    if (attribute.has_g()) for_each_tensor(*attribute.mutable_g(), visit, in_function);
    for (auto& graph : *attribute.mutable_graphs()) for_each_tensor(graph, visit, in_function);
  }
}

}  // namespace

void for_each_tensor(onnx::GraphProto& graph, const TensorVisitor& visit, bool in_function) {
  for (auto& tensor : *graph.mutable_initializer())
    visit(tensor, in_function ? TensorPlace::kFunction : TensorPlace::kInitializer);
  for (auto& node : *graph.mutable_node()) walk_node(node, visit, in_function);
}

void for_each_tensor(onnx::ModelProto& model, const TensorVisitor& visit) {
  for_each_tensor(*model.mutable_graph(), visit);
  for (auto& function : *model.mutable_functions()) {
    for (auto& attribute : *function.mutable_attribute_proto())
      if (attribute.has_t()) visit(*attribute.mutable_t(), TensorPlace::kAttribute);
    for (auto& node : *function.mutable_node()) walk_node(node, visit, true);
  }
}

}  // namespace pare
