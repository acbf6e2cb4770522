// Graph -> GraphProto, one scope at a time. Internal to graphsurgeon/onnx.
#pragma once

#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/ir/graph.h"
#include "graphsurgeon/onnx/external_store.h"
#include "graphsurgeon/onnx/proto.h"

namespace pare {

// Element type, shape and kind.
void write_type(const Value& value, onnx::TypeProto& type);

// The node in its newest form with the values' own names; subgraph attributes are left out.
onnx::NodeProto plain_node_proto(const Graph& graph, const Node& node);

// Writes values, nodes and subgraphs. Names are the values' own; where a subgraph would hide a name of an
// enclosing graph (ONNX forbids it) it gets a suffix. Constants that nothing uses are left out; constants
// that an enclosing graph holds under the same name and memory are not written twice. Nodes with one name
// get suffixes: other tools key on node names.
class GraphExporter {
 public:
  // `store` takes large constants out of the model; nullptr: none goes out.
  GraphExporter(const Graph& graph, int opset, GraphExporter* parent, ExternalStore* store = nullptr)
      : graph_(graph), opset_(opset), parent_(parent), store_(store) {}

  // `captured[i]`: exported names of the owning node's inputs; nullptr for the main graph.
  void run(onnx::GraphProto& proto, const std::vector<std::string>* captured);

  const std::set<std::string>& domains() const { return domains_; }  // those used, subgraphs included
  const std::set<DType>& dtypes() const { return dtypes_; }

 private:
  bool taken(const std::string& name) const;
  std::string fresh(const std::string& name);
  const std::string& name_of(ValueId id) const { return names_[static_cast<std::size_t>(id)]; }
  void name_values(const std::vector<std::string>* captured);
  bool inherited(const Value& value) const;
  void write_constants(onnx::GraphProto& proto);  // after the nodes: lowering needs fewer
  void write_node(const Node& node, onnx::GraphProto& proto);
  void write_value(ValueId id, onnx::ValueInfoProto& info);
  void write_outputs(onnx::GraphProto& proto);
  std::string node_name(const Node& node);

  const Graph& graph_;
  int opset_;
  GraphExporter* parent_;
  ExternalStore* store_;
  std::vector<std::string> names_;  // by value
  std::vector<bool> inherited_;     // constants that an enclosing graph writes
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, const void*> constants_;  // held here: name, memory
  std::unordered_set<std::string> read_;                    // names that nodes here and inside read
  std::unordered_set<std::string> node_names_;
  std::set<std::string> domains_;
  std::set<DType> dtypes_;
};

}  // namespace pare
