#include "graphsurgeon/passes/pass.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <variant>

#include "engine/base/error.h"
#include "engine/ir/schema.h"

namespace pare {
namespace {

// The graph and every subgraph in it, inner ones first. A subgraph that graphs share is made this graph's
// own.
template <typename Visit>
void for_each_scope(Graph& graph, const Visit& visit) {
  for (const NodeId id : graph.nodes())
    for (auto& [key, attribute] : graph.node(id).attrs) {
      auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute);
      if (body == nullptr) continue;
      if (body->use_count() > 1) *body = std::make_shared<Graph>(**body);
      for_each_scope(**body, visit);
    }
  visit(graph);
}

std::int64_t run_pass(const Pass& pass, Graph& graph, PassContext& context) {
  std::int64_t changes = 0;
  try {
    for_each_scope(graph, [&](Graph& scope) { changes += pass.run(scope, context); });
    if (changes > 0) {
      infer_shapes(graph);
      verify(graph);
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal || error.code() == ErrorCode::kInterrupted) throw;
    throw make_error(ErrorCode::kInternal, "pass '{}' broke the graph: {}", pass.name, error.what())
        .at(error.where())
        .hint(fmt::format("Leave the pass out (--without {}) and report this.", pass.name));
  }
  return changes;
}

}  // namespace

bool PassContext::may_change(const Graph& graph, NodeId id) {
  if (changes_left != 1) return may_change(std::string());
  const Node& node = graph.node(id);
  const ValueId out = node.out.empty() ? ValueId::kNone : node.out[0];
  const std::string name = !node.name.empty()      ? node.name
                           : out != ValueId::kNone ? graph.value(out).name
                                                   : std::string("without a name");
  return may_change(fmt::format("{} '{}'", node.op, name));
}

bool PassContext::may_change(const std::string& what) {
  if (changes_left <= 0) return false;
  ++changes;
  if (--changes_left == 0) last_change = what;
  return true;
}

std::vector<PassReport> run_passes(Graph& graph, std::span<const Pass* const> passes,
                                   const RunPassesOptions& options, PassContext* left) {
  std::vector<PassReport> reports;
  std::vector<const Pass*> wanted;
  std::vector<const char*> names;
  for (const Pass* pass : passes) names.push_back(pass->name);
  for (const std::string& name : options.without)
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw make_error(ErrorCode::kUsage, "there is no pass '{}'", name)
          .hint("did you mean '" + nearest_word(name, names.data(), names.size()) + "'?");
  for (const Pass* pass : passes) {
    if (std::find(options.without.begin(), options.without.end(), pass->name) != options.without.end())
      continue;
    wanted.push_back(pass);
    reports.push_back({pass->name, 0, 0});
  }
  PassContext context = options.context;
  infer_shapes(graph);
  for (int round = 0; round < options.max_rounds; ++round) {
    std::int64_t changes = 0;
    for (std::size_t i = 0; i < wanted.size() && context.changes_left > 0; ++i) {
      context.last_pass = wanted[i]->name;
      const auto start = std::chrono::steady_clock::now();
      const std::int64_t now = run_pass(*wanted[i], graph, context);
      reports[i].changes += now;
      reports[i].seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      changes += now;
    }
    if (changes == 0 || context.changes_left <= 0) break;
  }
  if (left != nullptr) *left = context;
  return reports;
}

}  // namespace pare
