// A pass changes a graph and keeps what it computes. It is a name, a sentence and a function; one runner runs
// every pass, on every subgraph too, verifies the graph after it, counts, times, and can leave it out.
#pragma once

#include <climits>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

class PassContext {
 public:
  // Constants that a run of the passes may add beyond those that they replace, in bytes: folding must not
  // blow a model up (Expand, Tile and ConstantOfShape can).
  std::int64_t growth_left = 64 << 20;
  std::int64_t growth_at_once = 512 << 10;  // of one node

  // Asked right before each change, with the node that it begins at: false means leave it. So a run can stop
  // after any number of changes, and a wrong one is found by halving (bisect.h).
  bool may_change(const Graph& graph, NodeId id);
  bool may_change(const std::string& what);

  std::int64_t changes_left = INT64_MAX;
  std::int64_t changes = 0;  // that were allowed
  std::string last_change;   // when changes_left came to 0: what the last one was about
  std::string last_pass;     // that was run
};

struct Pass {
  const char* name;      // "fold_batch_normalization"
  const char* sentence;  // what it does, for people
  // Changes one graph, not its subgraphs; shapes are inferred. Returns the number of changes. New values get
  // their dtype and shape from the pass. Names of graph inputs and outputs stay.
  int (*run)(Graph& graph, PassContext& context);
};

struct PassReport {
  std::string name;
  std::int64_t changes = 0;
  double seconds = 0;
};

struct RunPassesOptions {
  std::vector<std::string> without;  // names of passes to leave out
  int max_rounds = 30;               // of the whole list; it stops when nothing changes
  PassContext context;
};

// Runs the list until nothing changes. One report a pass, in the order of the list, summed over rounds.
// Error kUsage for a name in `without` that no pass has; kInternal when a pass breaks the graph. With
// options.context.changes_left it stops after so many changes; `context`, when given, is what is left of it.
std::vector<PassReport> run_passes(Graph& graph, std::span<const Pass* const> passes,
                                   const RunPassesOptions& options, PassContext* context = nullptr);

}  // namespace pare
