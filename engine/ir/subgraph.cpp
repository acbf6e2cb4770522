#include "engine/ir/subgraph.h"

#include <algorithm>
#include <tuple>

#include "engine/base/error.h"

namespace pare {
namespace {

using Held = std::shared_ptr<Graph>;

void walk(const Graph& graph, SubgraphPath& path,
          const std::function<void(const SubgraphPath&, const Graph&)>& visit) {
  visit(path, graph);
  for (const NodeId id : graph.nodes())
    for (const auto& [key, attribute] : graph.node(id).attrs) {
      const Held* body = std::get_if<Held>(&attribute);
      if (body == nullptr || *body == nullptr) continue;
      path.push_back({id, key});
      walk(**body, path, visit);
      path.pop_back();
    }
}

}  // namespace

bool SubgraphStep::operator<(const SubgraphStep& other) const {
  return std::tie(node, attribute) < std::tie(other.node, other.attribute);
}

std::string to_string(const Graph& graph, const SubgraphPath& path) {
  std::string text;
  const Graph* at = &graph;
  for (const SubgraphStep& step : path) {
    const Node& node = at->node(step.node);
    std::string name = node.name;
    for (std::size_t i = 0; name.empty() && i < node.out.size(); ++i)
      if (node.out[i] != ValueId::kNone) name = at->value(node.out[i]).name;
    text += (text.empty() ? "" : "/") + name + "." + step.attribute;
    at = &subgraph(node, step.attribute);
  }
  return text;
}

std::string value_label(const Graph& graph, const SubgraphPath& path, ValueId id) {
  const std::string& name = subgraph_at(graph, path).value(id).name;
  return path.empty() ? name : to_string(graph, path) + "/" + name;
}

bool is_captured(const Graph& graph, ValueId id) {
  return std::any_of(graph.captures.begin(), graph.captures.end(),
                     [&](const Capture& capture) { return capture.inner == id; });
}

const Graph& subgraph(const Node& node, std::string_view attribute) {
  const auto found = node.attrs.find(attribute);
  PARE_ASSERT(found != node.attrs.end());
  const Held* body = std::get_if<Held>(&found->second);
  PARE_ASSERT(body != nullptr && *body != nullptr);
  return **body;
}

const Graph& subgraph_at(const Graph& graph, const SubgraphPath& path) {
  const Graph* at = &graph;
  for (const SubgraphStep& step : path) at = &subgraph(at->node(step.node), step.attribute);
  return *at;
}

Graph& own_subgraph_at(Graph& graph, const SubgraphPath& path) {
  Graph* at = &graph;
  for (const SubgraphStep& step : path) {
    auto& attrs = at->node(step.node).attrs;
    const auto found = attrs.find(step.attribute);
    PARE_ASSERT(found != attrs.end());
    Held* body = std::get_if<Held>(&found->second);
    PARE_ASSERT(body != nullptr && *body != nullptr);
    if (body->use_count() > 1) *body = std::make_shared<Graph>(**body);
    at = body->get();
  }
  return *at;
}

void walk_graphs(const Graph& graph, const std::function<void(const SubgraphPath&, const Graph&)>& visit) {
  SubgraphPath path;
  walk(graph, path, visit);
}

std::vector<std::string> subgraph_attributes(const Node& node) {
  std::vector<std::string> keys;
  for (const auto& [key, attribute] : node.attrs)
    if (std::holds_alternative<Held>(attribute)) keys.push_back(key);
  return keys;
}

bool has_subgraph(const Node& node) {
  return std::any_of(node.attrs.begin(), node.attrs.end(),
                     [](const auto& entry) { return std::holds_alternative<Held>(entry.second); });
}

int pull_in_constants(Graph& graph) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    const int declared = graph.node(id).declared_inputs;
    for (const std::string& key : subgraph_attributes(graph.node(id))) {
      Graph& body = own_subgraph_at(graph, {{id, key}});
      std::vector<Capture> left;
      for (const Capture& capture : body.captures) {
        const ValueId outer = graph.node(id).in[static_cast<std::size_t>(capture.input)];
        if (!graph.is_constant(outer)) {
          left.push_back(capture);
          continue;
        }
        Value& inner = body.value(capture.inner);
        const Value& source = graph.value(outer);
        inner.constant = source.constant;
        inner.dtype = source.dtype;
        inner.shape = source.shape;
        inner.layout = source.layout;
        ++count;
      }
      body.captures = std::move(left);
      count += pull_in_constants(body);
    }
    if (declared < 0) continue;
    std::vector<bool> used(graph.node(id).in.size(), false);
    for (const std::string& key : subgraph_attributes(graph.node(id)))
      for (const Capture& capture : subgraph(graph.node(id), key).captures)
        used[static_cast<std::size_t>(capture.input)] = true;
    for (std::size_t i = static_cast<std::size_t>(declared); i < used.size(); ++i)
      if (!used[i]) graph.set_input(id, static_cast<int>(i), ValueId::kNone);
  }
  return count;
}

}  // namespace pare
