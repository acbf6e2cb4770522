// Do two graphs compute the same? Both run on generated inputs, and the outputs are compared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/ir/graph.h"

namespace pare {

struct SelfCheckOptions {
  std::uint64_t seed = 1;
  // Allowed: |a - b| <= relative * max|a| over the output + absolute. Folding moves roundings (unit 6e-8 a
  // step, some tens of steps deep); 1e-4 is far above that and far below a wrong fold.
  double relative = 1e-4, absolute = 1e-6;
  // Running a graph packs its weights, twice here. Of graphs with more bytes of constants nothing is
  // compared.
  std::int64_t largest_weights = std::int64_t{1} << 30;
};

struct SelfCheckReport {
  bool done = false;
  std::string why_not;       // when not done: why the model could not be run
  double max_abs_diff = 0;   // over all outputs and runs
  std::int64_t runs = 0;     // batches of 1 and 2 where the batch is symbolic
  std::string worst_output;  // "" when all are equal
  bool passed = true;        // all within tolerance; integers, booleans, NaN and infinities equal
  std::string failure;       // what is wrong, when not passed
};

// Inputs: floats from N(0,1), seeded; integers small and positive, or below the number of rows where they
// index a constant (Gather); booleans both. A symbol has one size throughout a run: 1, then 2 where it is the
// first size of an input; others are tried until the first graph runs. Needs kernels for both graphs; a first
// graph that does not run is `why_not`, a second one that does not is a failure.
SelfCheckReport compare_on_generated(const Graph& first, const Graph& second, const SelfCheckOptions& options,
                                     ThreadPool& pool);

}  // namespace pare
