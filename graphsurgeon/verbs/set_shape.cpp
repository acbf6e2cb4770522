#include "graphsurgeon/verbs/set_shape.h"

#include <cctype>
#include <map>
#include <memory>
#include <set>

#include "engine/base/error.h"
#include "engine/ir/schema.h"
#include "graphsurgeon/verbs/scopes.h"

namespace pare {
namespace {

[[noreturn]] void refuse(const std::string& text, const std::string& part) {
  throw make_error(ErrorCode::kUsage, "'{}' is no size in '{}'", part, text)
      .hint("sizes are numbers, names or ?, as in 1x3x224x224 or batch,3,height,width");
}

Dim parse_dim(const std::string& text, const std::string& part) {
  if (part == "?") return {};
  if (part.empty() || part.size() > 256) refuse(text, part);
  bool digits = true;
  for (const char c : part) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isalnum(u) == 0 && c != '_' && c != '.' && c != '-') refuse(text, part);
    digits = digits && std::isdigit(u) != 0;
  }
  if (!digits && (part[0] == '-' || std::isdigit(static_cast<unsigned char>(part[0])) != 0))
    refuse(text, part);
  if (!digits) return Dim::named(part);
  if (part.size() > 15) refuse(text, part);
  return Dim::of(std::stoll(part));
}

using Replacements = std::map<std::string, Dim>;

void replace(Replacements& into, const std::string& symbol, const Dim& dim) {
  const auto [place, is_new] = into.emplace(symbol, dim);
  if (!is_new && !(place->second.value == dim.value && place->second.symbol == dim.symbol))
    throw make_error(ErrorCode::kUsage, "the symbol '{}' would be both {} and {}", symbol,
                     to_string(place->second), to_string(dim))
        .hint("one symbol is one number wherever it stands");
}

Replacements replacements(const Graph& graph, const SetShapeOptions& options) {
  Replacements found;
  std::set<std::string> known;
  for (const ValueId id : graph.inputs)
    for (const Dim& dim : graph.value(id).shape.dims)
      if (!dim.symbol.empty()) known.insert(dim.symbol);
  for (const auto& [symbol, dim] : options.symbols) {
    if (known.count(symbol) == 0) {
      std::vector<const char*> names;
      for (const std::string& name : known) names.push_back(name.c_str());
      const std::string nearest = nearest_word(symbol, names.data(), names.size());
      throw make_error(ErrorCode::kUsage, "no input has a size named '{}'", symbol)
          .hint(nearest.empty() ? "`pare inspect` shows the shapes" : "did you mean '" + nearest + "'?");
    }
    replace(found, symbol, dim);
  }
  for (const auto& [name, dims] : options.inputs) {
    const ValueId id = named_value(graph, name);
    if (!graph.is_input(id))
      throw make_error(ErrorCode::kUsage, "'{}' is not an input", name)
          .hint("shapes inside follow from those of the inputs");
    const Shape& old = graph.value(id).shape;
    if (old.ranked && old.dims.size() != dims.size())
      throw make_error(ErrorCode::kUsage, "input '{}' has {} sizes, not {}", name, old.dims.size(),
                       dims.size())
          .hint("its shape is " + to_string(old));
    for (std::size_t i = 0; i < old.dims.size(); ++i)
      if (!old.dims[i].symbol.empty() && (dims[i].known() || !dims[i].symbol.empty()))
        replace(found, old.dims[i].symbol, dims[i]);
  }
  return found;
}

// What inference will fill in again. Declared shapes of operators without a rule stay.
void forget(Graph& graph) {
  for_each_graph(graph, [&](Graph& scope, const std::string& path) {
    for (const NodeId id : scope.nodes()) {
      if (find_schema(scope.node(id).domain, scope.node(id).op) == nullptr) continue;
      for (const ValueId out : scope.node(id).out)
        if (out != ValueId::kNone) scope.value(out).shape = Shape();
    }
    if (path.empty()) return;
    for (const ValueId id : scope.inputs) scope.value(id).shape = Shape();
    for (const Capture& capture : scope.captures) scope.value(capture.inner).shape = Shape();
  });
}

std::vector<std::string> all_shapes(const Graph& graph) {
  std::vector<std::string> shapes;
  for_each_graph(graph, [&](const Graph& scope, const std::string&) {
    for (std::size_t i = 0; i < scope.value_count(); ++i)
      shapes.push_back(to_string(scope.value(static_cast<ValueId>(i)).shape));
  });
  return shapes;
}

}  // namespace

std::vector<Dim> parse_dims(const std::string& text) {
  std::string inner = text;
  if (inner.size() >= 2 && inner.front() == '[' && inner.back() == ']')
    inner = inner.substr(1, inner.size() - 2);
  std::vector<Dim> dims;
  if (inner.empty()) return dims;
  const bool commas = inner.find(',') != std::string::npos;
  const bool list = inner.size() != text.size() || commas;
  for (std::size_t begin = 0; begin <= inner.size();) {
    std::size_t end = inner.find(list ? ',' : 'x', begin);
    if (end == std::string::npos) end = inner.size();
    std::string part = inner.substr(begin, end - begin);
    while (list && !part.empty() && part.front() == ' ') part.erase(0, 1);
    dims.push_back(parse_dim(text, part));
    begin = end + 1;
  }
  return dims;
}

SetShapeReport set_shapes(Graph& graph, const SetShapeOptions& options) {
  Graph changed = graph;
  infer_shapes(changed);
  const std::vector<std::string> before = all_shapes(changed);
  const Replacements symbols = replacements(changed, options);
  std::vector<Shape> outputs;
  for (const ValueId id : changed.outputs) outputs.push_back(changed.value(id).shape);
  forget(changed);
  for (const ValueId id : changed.inputs)
    for (Dim& dim : changed.value(id).shape.dims)
      if (const auto it = symbols.find(dim.symbol); !dim.symbol.empty() && it != symbols.end())
        dim = it->second;
  for (const auto& [name, dims] : options.inputs)
    changed.value(named_value(changed, name)).shape = Shape(dims);
  try {
    infer_shapes(changed);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadFile) throw;
    throw make_error(ErrorCode::kUsage, "the shapes do not fit the model: {}", error.what())
        .at(error.where())
        .hint(
            "A size is fixed inside the model (by a weight or a Reshape); only sizes that it leaves open can "
            "change.");
  }
  SetShapeReport report;
  for (std::size_t i = 0; i < changed.outputs.size(); ++i) {
    Shape& shape = changed.value(changed.outputs[i]).shape;
    if (shape.ranked || !outputs[i].ranked) continue;
    report.warnings.push_back("the shape of output '" + changed.value(changed.outputs[i]).name +
                              "' cannot be inferred; its rank stays");
    shape = Shape(std::vector<Dim>(outputs[i].dims.size()));
  }
  verify(changed);
  const std::vector<std::string> after = all_shapes(changed);
  for (std::size_t i = 0; i < before.size() && i < after.size(); ++i)
    report.changed_values += before[i] != after[i];
  graph = std::move(changed);
  return report;
}

}  // namespace pare
