#include "engine/ir/subgraph.h"
#include "graphsurgeon/passes/passes.h"

namespace pare {
namespace {

// All of them count as one change: none can alter a value.
int run(Graph& graph, PassContext& context) {
  if (context.changes_left <= 0) return 0;
  const int count = pull_in_constants(graph);
  if (count > 0) context.may_change("captured constants");
  return count;
}

}  // namespace

const Pass kPullInConstants = {"pull_in_constants", "make constants that subgraphs capture their own", run};

}  // namespace pare
