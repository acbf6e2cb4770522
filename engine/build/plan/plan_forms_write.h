// Nodes in place of another one. Private to plan_forms*.cpp.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "engine/ir/graph.h"

namespace pare::planning {

class Rewrite {
 public:
  Rewrite(Graph& graph, NodeId id) : graph_(graph), id_(id), node_(graph.node(id)) {}

  const Node& node() const { return node_; }
  Graph& graph() { return graph_; }
  ValueId in(std::size_t slot) const { return slot < node_.in.size() ? node_.in[slot] : ValueId::kNone; }
  ValueId out(std::size_t slot) const { return slot < node_.out.size() ? node_.out[slot] : ValueId::kNone; }
  Dims dims(ValueId value) const { return graph_.value(value).shape.sizes(); }
  bool sized(ValueId value) const { return graph_.value(value).shape.concrete(); }
  // The constant in this slot, by value (adding values moves those that are there); false when there is none.
  bool known(std::size_t slot, Tensor& out) const {
    if (!graph_.is_constant(in(slot))) return false;
    out = graph_.value(in(slot)).constant;
    return true;
  }

  // A node of one output in front of the old one; it takes its name when it is the same operator.
  ValueId add(const char* op, std::vector<ValueId> in, Attributes attrs = {}, const char* domain = "") {
    Node made = start(op, std::move(in), std::move(attrs), domain);
    Value value;
    value.name = made.name;
    value.dtype = graph_.value(made.in[0]).dtype;
    made.out = {graph_.add_value(std::move(value))};
    const ValueId out = made.out[0];
    graph_.insert_before(id_, std::move(made));
    return out;
  }
  // The last one, whose output is the old node's; finish() then takes that away.
  void give(std::size_t slot, const char* op, std::vector<ValueId> in, Attributes attrs = {},
            const char* domain = "") {
    if (out(slot) == ValueId::kNone) return;
    Node made = start(op, std::move(in), std::move(attrs), domain);
    graph_.set_output(id_, static_cast<int>(slot), ValueId::kNone);
    made.out = {node_.out[slot]};
    graph_.insert_before(id_, std::move(made));
  }
  void finish() { graph_.remove_node(id_); }

  ValueId ints(const std::vector<std::int64_t>& values) { return constant(Tensor::ints(values)); }
  ValueId constant(Tensor tensor) { return graph_.add_constant(label() + "_constant", std::move(tensor)); }
  ValueId reshape(ValueId x, const Dims& to) { return add("Reshape", {x, ints(to)}); }
  ValueId transpose(ValueId x, std::vector<std::int64_t> perm) {
    return add("Transpose", {x}, {{"perm", std::move(perm)}});
  }

 private:
  std::string label() const { return node_.name.empty() ? graph_.value(node_.out[0]).name : node_.name; }
  Node start(const char* op, std::vector<ValueId> in, Attributes attrs, const char* domain) {
    Node made;
    made.op = op;
    made.domain = domain;
    made.name = node_.op == op ? label() : label() + "/" + op + std::to_string(++count_);
    made.in = std::move(in);
    made.attrs = std::move(attrs);
    return made;
  }

  Graph& graph_;
  NodeId id_;
  const Node node_;
  int count_ = 0;
};

}  // namespace pare::planning
