// GraphProto -> Graph, one scope at a time. Internal to graphsurgeon/onnx.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/ir/graph.h"
#include "graphsurgeon/onnx/proto.h"
#include "graphsurgeon/onnx/raise/raise.h"
#include "graphsurgeon/onnx/tensor_proto.h"

namespace pare {

// What all scopes of one model share.
struct ModelScope {
  std::string file;                   // for errors
  int opset = 0;                      // ai.onnx
  std::map<std::string, int> opsets;  // all domains; "ai.onnx" is ""
  TensorSource tensors;
  std::vector<std::unique_ptr<Raiser>> raisers;  // one a graph, for finish()
};

class GraphImporter {
 public:
  GraphImporter(ModelScope& model, GraphImporter* parent, int depth);

  // Errors as read_onnx; `where` names file and node.
  void run(const onnx::GraphProto& proto, Graph& graph);

 private:
  struct PendingCapture {
    std::string name;
    ValueId outer, inner;
  };

  void add_initializer(const std::string& name, Tensor tensor);
  void add_input(const onnx::ValueInfoProto& info);
  void add_node(const onnx::NodeProto& proto);
  void add_constant_node(const onnx::NodeProto& proto);
  void import_attribute(const onnx::AttributeProto& proto, Node& node, std::map<std::string, int>& captured);
  void declare(const onnx::ValueInfoProto& info);
  ValueId define(const std::string& name, Value value);  // error when the name is taken
  ValueId find(const std::string& name);                 // captures from enclosing scopes; kNone if unknown

  ModelScope& model_;
  GraphImporter* parent_;
  int depth_;
  Graph* graph_ = nullptr;
  Raiser* raiser_ = nullptr;
  std::unordered_map<std::string, ValueId> names_;
  std::unordered_map<std::string, const onnx::ValueInfoProto*> declared_;
  std::vector<PendingCapture> captures_;
};

}  // namespace pare
