#include "graphsurgeon/simplify.h"

#include <memory>
#include <utility>
#include <variant>

#include "engine/base/error.h"
#include "graphsurgeon/passes/passes.h"

namespace pare {

std::int64_t count_nodes(const Graph& graph) {
  auto count = static_cast<std::int64_t>(graph.node_count());
  for (const NodeId id : graph.nodes())
    for (const auto& [key, attribute] : graph.node(id).attrs)
      if (const auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute)) count += count_nodes(**body);
  return count;
}

SimplifyReport simplify(Graph& graph, const SimplifyOptions& options) {
  SimplifyReport report;
  report.nodes_before = count_nodes(graph);
  Graph changed = graph;
  RunPassesOptions run;
  run.without = options.without;
  report.passes = run_passes(changed, options.recognize ? all_passes() : simplify_passes(), run);
  report.nodes_after = count_nodes(changed);
  if (options.self_check) {
    std::unique_ptr<ThreadPool> own;
    if (options.pool == nullptr) own = std::make_unique<ThreadPool>(available_threads());
    report.check =
        compare_on_generated(graph, changed, options.check, options.pool != nullptr ? *options.pool : *own);
    if (!report.check.passed)
      throw make_error(ErrorCode::kFailedGate, "simplify changed what the model computes: {}",
                       report.check.failure)
          .hint(
              "--bisect finds the pass and the change; --without NAME leaves a pass out. Please report it.");
  }
  graph = std::move(changed);
  return report;
}

}  // namespace pare
