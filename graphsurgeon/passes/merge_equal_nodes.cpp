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
bool may_merge(const Graph& graph, const Node& node) {
  const OpSchema* schema = find_schema(node.domain, node.op);
  if (schema == nullptr || !schema->deterministic || node.out.empty()) return false;
  for (const auto& [key, attribute] : node.attrs)
    if (std::holds_alternative<std::shared_ptr<Graph>>(attribute)) return false;
  for (const ValueId out : node.out)
    if (out != ValueId::kNone && graph.is_output(out)) return false;
  // A Dropout in training is random whatever its schema says.
  return !node.is("Dropout") || node.in.size() < 3;
}

std::string key_of(const Node& node) {
  std::string key = node.domain + "/" + node.op;
  for (const ValueId in : node.in) key += "," + std::to_string(static_cast<int>(in));
  for (const ValueId out : node.out) key += out == ValueId::kNone ? "-" : "+";
  for (const auto& [name, attribute] : node.attrs) {
    key += ";" + name + std::to_string(attribute.index()) + "=";
    std::visit(KeyWriter{key}, attribute);
  }
  return key;
}

int merge_equal_nodes(Graph& graph, PassContext&) {
  std::unordered_map<std::string, NodeId> first;
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    if (!may_merge(graph, graph.node(id))) continue;
    const auto [place, is_new] = first.emplace(key_of(graph.node(id)), id);
    if (is_new) continue;
    const std::vector<ValueId> outs = graph.node(id).out, kept = graph.node(place->second).out;
    graph.remove_node(id);
    for (std::size_t i = 0; i < outs.size(); ++i)
      if (outs[i] != ValueId::kNone) graph.replace_uses(outs[i], kept[i]);
    ++count;
  }
  return count;
}

}  // namespace

const Pass kMergeEqualNodes = {"merge_equal_nodes",
                               "compute once what nodes with equal operator, attributes and inputs give",
                               merge_equal_nodes};

}  // namespace pare
