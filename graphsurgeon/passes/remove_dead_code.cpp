#include <algorithm>
#include <set>

#include "graphsurgeon/passes/passes.h"

namespace pare {
namespace {

int remove_dead_code(Graph& graph, PassContext&) {
  const std::set<ValueId> results(graph.outputs.begin(), graph.outputs.end());
  const std::vector<NodeId> order = graph.nodes();
  int count = 0;
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const Node& node = graph.node(*it);
    const bool needed = std::any_of(node.out.begin(), node.out.end(), [&](ValueId out) {
      return out != ValueId::kNone && (!graph.users(out).empty() || results.count(out) != 0);
    });
    if (needed) continue;
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
