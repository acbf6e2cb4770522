// What both directions of qoperator.h share. Only qoperator*.cpp include this.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "engine/ir/schema.h"
#include "graphsurgeon/forms/qoperator.h"

namespace pare {

inline constexpr const char* kMicrosoft = "com.microsoft";

inline ValueId input(const Node& node, std::size_t slot) {
  return slot < node.in.size() ? node.in[slot] : ValueId::kNone;
}

// A node in front of `where` with one output of this type; its shape is inferred later.
inline ValueId emit_before(Graph& graph, NodeId where, Node node, const std::string& name, DType type) {
  Value value;
  value.name = name;
  value.dtype = type;
  const ValueId out = graph.add_value(std::move(value));
  node.out = {out};
  graph.insert_before(where, std::move(node));
  return out;
}

// Runs `round` on the graph and on every subgraph; shared subgraphs are copied first.
inline void for_each_graph(Graph& graph, const std::function<void(Graph&)>& round) {
  for (const NodeId id : graph.nodes())
    for (auto& [key, attribute] : graph.node(id).attrs) {
      auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute);
      if (body == nullptr) continue;
      if (body->use_count() > 1) *body = std::make_shared<Graph>(**body);
      for_each_graph(**body, round);
    }
  round(graph);
}

// `round` on a copy of the graph and its subgraphs, which takes the graph's place once it is verified.
inline QuantizedFormReport in_other_form(Graph& graph,
                                         const std::function<void(Graph&, QuantizedFormReport&)>& round) {
  QuantizedFormReport report;
  Graph changed = graph;
  for_each_graph(changed, [&](Graph& g) { round(g, report); });
  infer_shapes(changed);
  changed.drop_unused_values();
  verify(changed);
  graph = std::move(changed);
  return report;
}

// Takes out nodes whose outputs nobody reads, those of `ops` only.
void remove_unread(Graph& graph, const std::vector<std::string>& ops);

// Products and convolutions behind DynamicQuantizeLinear (qoperator_dynamic.cpp).
void dynamic_to_integer(Graph& graph, QuantizedFormReport& report);

}  // namespace pare
