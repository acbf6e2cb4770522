// Replaces nodes that an older opset cannot hold by nodes that it can: by arithmetic, transposes and the like
// (expand_rules.cpp), or by the function body that ONNX gives the operator. Internal to graphsurgeon/onnx;
// convert_opset.h is the door.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

// Writes nodes before one that will go.
class Expander {
 public:
  Expander(Graph& graph, NodeId id, int opset)
      : graph_(graph),
        id_(id),
        opset_(opset),
        node_(graph.node(id)),
        stem_(node_.name.empty() ? node_.op : node_.name) {}

  const Node& node() const { return node_; }
  int opset() const { return opset_; }
  bool has(std::size_t slot) const { return slot < node_.in.size() && node_.in[slot] != ValueId::kNone; }
  const Value& in(std::size_t slot) const { return graph_.value(node_.in.at(slot)); }
  bool constant_ints(std::size_t slot, std::vector<std::int64_t>& out) const;
  int rank(std::size_t slot = 0) const { return in(slot).shape.rank(); }  // -1: not known
  bool size(std::size_t slot, std::int64_t axis,
            std::int64_t& out) const;  // a known size; axis may be negative

  // The output of a new node. Its dtype and shape are inferred later.
  ValueId emit(const char* op, std::vector<ValueId> in, Attributes attrs = {});
  // Of a node with two outputs, the second of which becomes the replaced node's own second one.
  ValueId emit_pair(const char* op, std::vector<ValueId> in, Attributes attrs);
  ValueId ints(std::vector<std::int64_t> values);
  ValueId floats(const std::vector<float>& values);
  ValueId scalar(DType type, double value);  // float32 or int64
  // The node's own output comes from this last node (all of them, where it is the same operator).
  void finish(const char* op, std::vector<ValueId> in, Attributes attrs = {});

 private:
  Graph& graph_;
  NodeId id_;
  int opset_;
  const Node node_;  // a copy: inserting moves nodes
  std::string stem_;
  int count_ = 0;
};

// True when a rule replaced the node. `why` is refined when a rule exists but this node is beyond it.
bool expand_by_rule(Graph& graph, NodeId id, int opset, std::string& why);

}  // namespace pare
