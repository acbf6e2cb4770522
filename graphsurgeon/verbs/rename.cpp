#include "graphsurgeon/verbs/rename.h"

#include <map>
#include <set>

#include "engine/base/error.h"
#include "engine/base/name_pattern.h"
#include "graphsurgeon/verbs/scopes.h"

namespace pare {
namespace {

constexpr const char* kWhat[] = {"value", "input", "output", "node"};

struct Rule {
  Renaming renaming;
  NamePattern from;
  bool used = false;
};

std::vector<Rule> compile(const std::vector<Renaming>& renamings) {
  std::vector<Rule> rules;
  for (const Renaming& renaming : renamings)
    rules.push_back(Rule{renaming, NamePattern(renaming.from), false});
  return rules;
}

bool applies(RenameWhat what, const Graph& graph, const std::string& path, ValueId id) {
  if (what == RenameWhat::kValue) return true;
  if (!path.empty()) return false;
  return what == RenameWhat::kInput ? graph.is_input(id) : what == RenameWhat::kOutput && graph.is_output(id);
}

// The name after all rules: literal ones look at the old name, patterns at what those before made of it.
std::string renamed(std::vector<Rule>& rules, const std::string& name, const auto& wanted) {
  std::string now = name;
  for (Rule& rule : rules) {
    if (!wanted(rule.renaming.what)) continue;
    const std::string& before = rule.from.is_pattern() ? now : name;
    if (!rule.from.fits(before)) continue;
    now = rule.from.replaced(before, rule.renaming.to);
    rule.used = true;
  }
  return now;
}

void need_used(const Graph& graph, const std::vector<Rule>& rules) {
  for (const Rule& rule : rules) {
    if (rule.used) continue;
    Error error =
        make_error(ErrorCode::kUsage, "there is no {} {} '{}'", kWhat[static_cast<int>(rule.renaming.what)],
                   rule.from.is_pattern() ? "that fits" : "named", rule.renaming.from);
    if (rule.from.is_pattern())
      error.hint(fmt::format(
          "a pattern fits whole names: did you mean '{}'? `pare inspect MODEL --layers` lists them",
          rule.from.wider()));
    else if (rule.renaming.what != RenameWhat::kNode)
      error.hint(nearest_value_hint(graph, rule.renaming.from));
    else
      error.hint("`pare inspect MODEL --layers` lists the names");
    throw error;
  }
}

void need_free(const std::string& kind, const std::string& from, const std::string& to) {
  if (to.empty())
    throw make_error(ErrorCode::kUsage, "the {} '{}' would have no name", kind, from)
        .hint("give a new name that is not empty");
  if (to.find_first_of(std::string_view("\0\n\r", 3)) != std::string::npos)
    throw make_error(ErrorCode::kUsage, "the new name of the {} '{}' has a line break or a zero in it", kind,
                     from)
        .hint("give a name of one line");
}

struct ValueChange {
  Graph* graph;
  ValueId id;
  Renamed what;
};

// One scope lies in the other, or they are the same: a name there means one thing.
bool related(const std::string& a, const std::string& b) {
  const std::string& shorter = a.size() < b.size() ? a : b;
  const std::string& longer = a.size() < b.size() ? b : a;
  return shorter.empty() || (longer.compare(0, shorter.size(), shorter) == 0 &&
                             (longer.size() == shorter.size() || longer[shorter.size()] == '/'));
}

// Values that stand for one outside are named by it when the file is written: only the outer one counts.
std::set<ValueId> captured(const Graph& graph) {
  std::set<ValueId> ids;
  for (const Capture& capture : graph.captures) ids.insert(capture.inner);
  return ids;
}

}  // namespace

Renaming parse_renaming(RenameWhat what, const std::string& text) {
  Renaming renaming;
  renaming.what = what;
  const bool pattern = text.rfind("re:", 0) == 0;
  const std::size_t equals = pattern ? text.rfind('=') : text.find('=');
  if (equals == std::string::npos || equals == (pattern ? 3 : 0))
    throw make_error(ErrorCode::kUsage, "'{}' is not of the form OLD=NEW", text)
        .hint("or a regular expression: re:PATTERN=REPLACEMENT");
  renaming.from = text.substr(0, equals);
  renaming.to = text.substr(equals + 1);
  return renaming;
}

std::vector<Renamed> rename(Graph& graph, const std::vector<Renaming>& renamings) {
  Graph changed = graph;
  std::vector<Rule> rules = compile(renamings);
  std::vector<ValueChange> values;
  std::vector<Renamed> all;
  std::map<std::string, std::vector<std::string>> value_scopes;  // by new name
  std::map<std::string, int> node_names;
  const auto node_rule = [](RenameWhat what) { return what == RenameWhat::kNode; };
  for_each_graph(changed, [&](Graph& scope, const std::string& path) {
    const std::set<ValueId> outside = captured(scope);
    for (std::size_t i = 0; i < scope.value_count(); ++i) {
      const auto id = static_cast<ValueId>(i);
      const std::string name = scope.value(id).name;
      if (name.empty() || outside.count(id) != 0) continue;
      const std::string to = renamed(rules, name, [&](RenameWhat what) {
        return what != RenameWhat::kNode && applies(what, scope, path, id);
      });
      value_scopes[to].push_back(path);
      if (to == name) continue;
      const char* kind = path.empty() && scope.is_input(id)    ? "input"
                         : path.empty() && scope.is_output(id) ? "output"
                                                               : "value";
      need_free(kind, name, to);
      values.push_back({&scope, id, {kind, name, to, path}});
    }
    for (const NodeId id : scope.nodes()) {
      std::string& name = scope.node(id).name;
      if (name.empty()) continue;
      const std::string to = renamed(rules, name, node_rule);
      ++node_names[to];
      if (to == name) continue;
      need_free("node", name, to);
      all.push_back({"node", name, to, path});
      name = to;
    }
  });
  need_used(graph, rules);
  for (const Renamed& node : all)
    if (node_names[node.to] > 1)
      throw make_error(ErrorCode::kUsage, "two nodes would be named '{}'", node.to)
          .hint("choose a name that is free; two names can swap in one command");
  for (const ValueChange& change : values) {
    int count = 0;
    for (const std::string& scope : value_scopes[change.what.to]) count += related(scope, change.what.scope);
    if (count > 1)
      throw make_error(ErrorCode::kUsage, "two values would be named '{}'", change.what.to)
          .hint("choose a name that is free; two names can swap in one command");
  }
  for (const ValueChange& change : values)  // out of each other's way first
    change.graph->rename(change.id, "pare.renaming." + change.what.from);
  std::vector<Renamed> result;
  for (const ValueChange& change : values) {
    change.graph->rename(change.id, change.what.to);
    result.push_back(change.what);
  }
  result.insert(result.end(), all.begin(), all.end());
  verify(changed);
  graph = std::move(changed);
  return result;
}

}  // namespace pare
