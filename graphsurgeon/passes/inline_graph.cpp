#include "graphsurgeon/passes/inline_graph.h"

#include <algorithm>
#include <utility>

namespace pare {

std::vector<ValueId> inline_graph(Graph& graph, NodeId owner, const Graph& body,
                                  const std::vector<ValueId>& inputs) {
  std::map<ValueId, ValueId> map;
  const std::vector<ValueId> outer = graph.node(owner).in;
  for (const Capture& capture : body.captures)
    map[capture.inner] = outer.at(static_cast<std::size_t>(capture.input));
  for (std::size_t i = 0; i < body.inputs.size(); ++i) map[body.inputs[i]] = inputs.at(i);
  for (std::size_t i = 0; i < body.value_count(); ++i) {
    const auto inner = static_cast<ValueId>(i);
    const Value& value = body.value(inner);
    if (map.count(inner) != 0 || (!value.is_constant() && value.producer == NodeId::kNone)) continue;
    Value copy = value;
    copy.producer = NodeId::kNone;
    map[inner] = graph.add_value(std::move(copy));
  }
  const auto mapped = [&](ValueId inner) { return inner == ValueId::kNone ? inner : map.at(inner); };
  for (const NodeId inner : body.nodes()) {
    Node copy = body.node(inner);
    for (ValueId& in : copy.in) in = mapped(in);
    for (ValueId& out : copy.out) out = mapped(out);
    graph.insert_before(owner, std::move(copy));
  }
  std::vector<ValueId> results;
  for (const ValueId out : body.outputs) results.push_back(mapped(out));
  return results;
}

bool may_be_one(const Value& a, const Value& b) {
  if (!a.shape.ranked || !b.shape.ranked) return true;
  return std::equal(
      a.shape.dims.begin(), a.shape.dims.end(), b.shape.dims.begin(), b.shape.dims.end(),
      [](const Dim& x, const Dim& y) { return !x.known() || !y.known() || x.value == y.value; });
}

void replace_by_identities(Graph& graph, NodeId owner, const std::vector<ValueId>& results) {
  const std::vector<ValueId> outs = graph.node(owner).out;
  // Insert behind the owner, then take it out: its outputs must be free first.
  for (std::size_t i = 0; i < outs.size(); ++i)
    if (outs[i] != ValueId::kNone) graph.set_output(owner, static_cast<int>(i), ValueId::kNone);
  NodeId place = owner;
  for (std::size_t i = 0; i < outs.size(); ++i) {
    if (outs[i] == ValueId::kNone) continue;
    Node identity;
    identity.op = "Identity";
    identity.in = {results.at(i)};
    identity.out = {outs[i]};
    place = graph.insert_after(place, std::move(identity));
  }
  graph.remove_node(owner);
}

}  // namespace pare
