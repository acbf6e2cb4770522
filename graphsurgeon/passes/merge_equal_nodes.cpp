#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>
#include <variant>

#include "engine/ir/schema.h"
#include "graphsurgeon/passes/passes.h"

namespace pare {
namespace {

struct KeyWriter {
  std::string& key;

  void bytes(const void* data, std::size_t count) const {
    key += std::to_string(count) + ":";
    key.append(static_cast<const char*>(data), count);
  }
  void operator()(std::int64_t v) const { bytes(&v, sizeof v); }
  void operator()(float v) const { bytes(&v, sizeof v); }
  void operator()(const std::string& v) const { bytes(v.data(), v.size()); }
  void operator()(const std::vector<std::string>& v) const {
    for (const std::string& text : v) (*this)(text);
  }
  template <typename T>
  void operator()(const std::vector<T>& v) const {
    bytes(v.data(), v.size() * sizeof(T));
  }
  void operator()(const Tensor& v) const {
    key += std::to_string(static_cast<int>(v.dtype())) + to_string(v.dims());
    if (v.dtype() != DType::kString) return bytes(v.byte_span().data(), v.byte_span().size());
    for (std::int64_t i = 0; i < v.size(); ++i) (*this)(v.as<std::string>()[i]);
  }
  void operator()(const std::shared_ptr<Graph>&) const {}
};

// Known to give the same for the same inputs; subgraphs are not looked into.
bool may_merge(const Node& node) {
  const OpSchema* schema = find_schema(node.domain, node.op);
  if (schema == nullptr || !schema->deterministic || node.out.empty()) return false;
  for (const auto& [key, attribute] : node.attrs)
    if (std::holds_alternative<std::shared_ptr<Graph>>(attribute)) return false;
  // A Dropout in training is random whatever its schema says.
  return !node.is("Dropout") || node.in.size() < 3;
}

// a + b and b + a are the same bits (but for the payload of NaN).
bool is_commutative(const Node& node) {
  return node.in.size() == 2 && (node.is("Add") || node.is("Mul") || node.is("And") || node.is("Or") ||
                                 node.is("Xor") || node.is("Equal"));
}

std::string key_of(const Node& node) {
  std::string key = node.domain + "/" + node.op;
  std::vector<ValueId> inputs = node.in;
  if (is_commutative(node)) std::sort(inputs.begin(), inputs.end());
  for (const ValueId in : inputs) key += "," + std::to_string(static_cast<int>(in));
  for (const ValueId out : node.out) key += out == ValueId::kNone ? "-" : "+";
  for (const auto& [name, attribute] : node.attrs) {
    key += ";" + name + std::to_string(attribute.index()) + "=";
    std::visit(KeyWriter{key}, attribute);
  }
  return key;
}

// Readers of the second node's outputs read the first one's. Outputs of the graph keep their names, so two of
// them are not merged.
bool can_merge(const Graph& graph, const Node& first, const Node& second) {
  for (std::size_t i = 0; i < second.out.size(); ++i)
    if (second.out[i] != ValueId::kNone && graph.is_output(second.out[i]) && graph.is_output(first.out[i]))
      return false;
  return true;
}

int merge_equal_nodes(Graph& graph, PassContext& context) {
  std::unordered_map<std::string, NodeId> first;
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    if (!may_merge(graph.node(id))) continue;
    const auto [place, is_new] = first.emplace(key_of(graph.node(id)), id);
    if (is_new || !can_merge(graph, graph.node(place->second), graph.node(id))) continue;
    if (!context.may_change(graph, id)) break;
    const std::vector<ValueId> outs = graph.node(id).out, kept = graph.node(place->second).out;
    graph.remove_node(id);
    for (std::size_t i = 0; i < outs.size(); ++i) {
      if (outs[i] == ValueId::kNone) continue;
      if (graph.is_output(outs[i])) {
        graph.set_output(place->second, static_cast<int>(i), outs[i]);
        graph.replace_uses(kept[i], outs[i]);
      } else {
        graph.replace_uses(outs[i], kept[i]);
      }
    }
    ++count;
  }
  return count;
}

}  // namespace

const Pass kMergeEqualNodes = {"merge_equal_nodes",
                               "compute once what nodes with equal operator, attributes and inputs give",
                               merge_equal_nodes};

}  // namespace pare
