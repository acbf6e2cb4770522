// `pare surgeon simplify --bisect`: which pass, and which of its changes, altered what a model computes.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/base/thread_pool.h"
#include "graphsurgeon/passes/pass.h"
#include "graphsurgeon/self_check.h"

namespace pare {

struct BisectReport {
  bool checked = false;      // the model ran, so outputs could be compared
  std::string why_not;       // when not
  std::int64_t changes = 0;  // of the whole run
  std::int64_t runs = 0;     // comparisons made
  bool found = false;        // some change alters an output; all below only then
  std::string pass;          // "fold_pad"
  std::int64_t change = 0;   // its number in the whole run, from 1: with one fewer all is well
  std::string what;          // "Conv 'conv_7'": the node it began at
  std::string failure;       // "output 'y': element 3 was ..."
};

// Halves the number of changes until one is left. `options.context.changes_left` is not looked at. A run with
// the same graph and options makes the same changes in the same order, so the number means the same each
// time. Errors as run_passes.
BisectReport bisect_passes(const Graph& graph, std::span<const Pass* const> passes,
                           const RunPassesOptions& options, const SelfCheckOptions& check, ThreadPool& pool);

}  // namespace pare
