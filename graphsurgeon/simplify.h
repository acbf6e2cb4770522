// `pare surgeon simplify`: the passes of passes.h until nothing changes, then the proof that the outputs
// stayed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/ir/graph.h"
#include "graphsurgeon/passes/pass.h"
#include "graphsurgeon/self_check.h"

namespace pare {

struct SimplifyOptions {
  std::vector<std::string> without;  // names of passes to leave out
  bool recognize = false;            // also the recognition passes of passes.h
  bool self_check = true;
  SelfCheckOptions check;
  ThreadPool* pool = nullptr;  // for the self-check; nullptr: one of its own
};

struct SimplifyReport {
  std::int64_t nodes_before = 0, nodes_after = 0;  // subgraphs included
  std::vector<PassReport> passes;
  SelfCheckReport check;  // check.done is false when it was switched off or could not be run
};

// Changes the graph in place. Errors: kFailedGate when the self-check finds a difference above its tolerance
// (the message names the output and both values); otherwise as run_passes. After an error the graph is as it
// was.
SimplifyReport simplify(Graph& graph, const SimplifyOptions& options = {});

std::int64_t count_nodes(const Graph& graph);  // subgraphs included

}  // namespace pare
