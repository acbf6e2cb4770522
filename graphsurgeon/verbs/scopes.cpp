#include "graphsurgeon/verbs/scopes.h"

#include <memory>
#include <variant>

#include "engine/base/error.h"

namespace pare {
namespace {

std::string below(const std::string& path, const std::string& scope) {
  return path.empty() ? scope : path + "/" + scope;
}

void walk(Graph& graph, const std::string& path,
          const std::function<void(Graph&, const std::string&)>& visit) {
  visit(graph, path);
  for (const NodeId id : graph.nodes())
    for (auto& [key, attribute] : graph.node(id).attrs) {
      auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute);
      if (body == nullptr) continue;
      if (body->use_count() > 1) *body = std::make_shared<Graph>(**body);
      walk(**body, below(path, scope_name(graph.node(id), key)), visit);
    }
}

void walk(const Graph& graph, const std::string& path,
          const std::function<void(const Graph&, const std::string&)>& visit) {
  visit(graph, path);
  for (const NodeId id : graph.nodes())
    for (const auto& [key, attribute] : graph.node(id).attrs)
      if (const auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute))
        walk(static_cast<const Graph&>(**body), below(path, scope_name(graph.node(id), key)), visit);
}

}  // namespace

std::string scope_name(const Node& node, const std::string& key) {
  return (node.name.empty() ? node.op : node.name) + "." + key;
}

void for_each_graph(Graph& graph, const std::function<void(Graph&, const std::string&)>& visit) {
  walk(graph, "", visit);
}

void for_each_graph(const Graph& graph, const std::function<void(const Graph&, const std::string&)>& visit) {
  walk(graph, "", visit);
}

std::string nearest_value_hint(const Graph& graph, const std::string& name) {
  std::vector<const char*> names;
  for (std::size_t i = 0; i < graph.value_count(); ++i) {
    const Value& value = graph.value(static_cast<ValueId>(i));
    if (!value.name.empty()) names.push_back(value.name.c_str());
  }
  const std::string nearest = nearest_word(name, names.data(), names.size());
  return nearest.empty() ? "`pare inspect MODEL --layers` lists the values"
                         : "did you mean '" + nearest + "'?";
}

ValueId named_value(const Graph& graph, const std::string& name) {
  const ValueId id = graph.find_value(name);
  if (id == ValueId::kNone)
    throw make_error(ErrorCode::kUsage, "the model has no value '{}'", name)
        .hint(nearest_value_hint(graph, name));
  return id;
}

}  // namespace pare
