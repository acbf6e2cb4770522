#include "engine/ir/subgraph.h"
#include "graphsurgeon/passes/passes.h"

namespace pare {
namespace {

int run(Graph& graph, PassContext&) { return pull_in_constants(graph); }

}  // namespace

const Pass kPullInConstants = {"pull_in_constants", "make constants that subgraphs capture their own", run};

}  // namespace pare
