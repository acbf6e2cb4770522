#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <variant>

#include "graphsurgeon/passes/passes.h"

namespace pare {
namespace {

std::vector<Graph*> bodies_of(const Node& node) {
  std::vector<Graph*> bodies;
  for (const auto& [key, attribute] : node.attrs)
    if (const auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute)) bodies.push_back(body->get());
  return bodies;
}

bool is_read(const Graph& body, ValueId id) { return !body.users(id).empty() || body.is_output(id); }

// Inputs of a node with subgraphs that stand for captures nobody inside reads any more. True when there were
// some; the node is another one then, with the same outputs.
bool drop_captures(Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  if (node.declared_inputs < 0) return false;
  std::map<int, int> place;  // where an input that stays goes
  for (int i = 0; i < node.declared_inputs; ++i) place[i] = i;
  for (const Graph* body : bodies_of(node))
    for (const Capture& capture : body->captures)
      if (is_read(*body, capture.inner)) place[capture.input] = 0;
  if (place.size() == node.in.size()) return false;
  Node fewer = node;
  fewer.in.clear();
  for (auto& [from, to] : place) {
    to = static_cast<int>(fewer.in.size());
    fewer.in.push_back(node.in[static_cast<std::size_t>(from)]);
  }
  for (Graph* body : bodies_of(fewer)) {
    std::vector<Capture> kept;
    for (const Capture& capture : body->captures)
      if (is_read(*body, capture.inner)) kept.push_back({place.at(capture.input), capture.inner});
    body->captures = std::move(kept);
    body->drop_unused_values();
  }
  if (static_cast<int>(fewer.in.size()) == fewer.declared_inputs) fewer.declared_inputs = -1;
  for (std::size_t i = 0; i < fewer.out.size(); ++i)
    graph.set_output(id, static_cast<int>(i), ValueId::kNone);
  graph.insert_after(id, std::move(fewer));
  graph.remove_node(id);
  return true;
}

// Results of an If that nobody reads; what only they need is dead inside then.
bool drop_results(Graph& graph, NodeId id, const std::set<ValueId>& results) {
  const Node& node = graph.node(id);
  if (!node.is("If")) return false;
  const auto read = [&](ValueId out) {
    return out != ValueId::kNone && (!graph.users(out).empty() || results.count(out) != 0);
  };
  if (std::all_of(node.out.begin(), node.out.end(), read)) return false;
  Node fewer = node;
  fewer.out.clear();
  for (const ValueId out : node.out)
    if (read(out)) fewer.out.push_back(out);
  for (const Graph* body : bodies_of(fewer))
    if (body->outputs.size() != node.out.size()) return false;
  for (Graph* body : bodies_of(fewer)) {
    std::vector<ValueId> kept;
    for (std::size_t i = 0; i < node.out.size(); ++i)
      if (read(node.out[i])) kept.push_back(body->outputs[i]);
    body->outputs = std::move(kept);
  }
  for (std::size_t i = graph.node(id).out.size(); i-- > 0;)
    graph.set_output(id, static_cast<int>(i), ValueId::kNone);
  graph.insert_after(id, std::move(fewer));
  graph.remove_node(id);
  return true;
}

int remove_dead_code(Graph& graph, PassContext& context) {
  const std::set<ValueId> results(graph.outputs.begin(), graph.outputs.end());
  const std::vector<NodeId> order = graph.nodes();
  int count = 0;
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const Node& node = graph.node(*it);
    const bool needed = std::any_of(node.out.begin(), node.out.end(), [&](ValueId out) {
      return out != ValueId::kNone && (!graph.users(out).empty() || results.count(out) != 0);
    });
    if (needed) {
      count += drop_results(graph, *it, results) || drop_captures(graph, *it);
      continue;
    }
    if (!context.may_change(graph, *it)) break;
    graph.remove_node(*it);
    ++count;
  }
  graph.drop_unused_values();
  return count;
}

}  // namespace

const Pass kRemoveDeadCode = {"remove_dead_code", "take out nodes and constants that no output needs",
                              remove_dead_code};

}  // namespace pare
