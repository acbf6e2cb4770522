// Graphs of single operators, made by hand.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

// A node of one output; both are named after the operator and `number`.
inline ValueId add_op(Graph& graph, const std::string& op, int number, std::vector<ValueId> in,
                      Attributes attrs = {}) {
  Node node;
  node.op = op;
  node.name = op + std::to_string(number);
  node.in = std::move(in);
  node.attrs = std::move(attrs);
  Value v;
  v.name = v.origin = node.name + "_out";
  const ValueId out = graph.add_value(std::move(v));
  node.out = {out};
  graph.add_node(std::move(node));
  return out;
}

}  // namespace pare
