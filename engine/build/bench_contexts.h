// Several contexts of one engine at the same time.
#pragma once

#include <memory>
#include <vector>

#include "engine/build/backend.h"

namespace pare {

struct ContextTimes {
  double one_per_second = 0, all_per_second = 0;  // runs: the first context alone, and all together
  bool same_bits = true;                          // every output of every context is that of the first
};

// Runs all contexts on `inputs` at once and compares their outputs; then `repeats` runs of the first alone
// and of each together. One thread a context.
ContextTimes bench_contexts(const std::vector<EngineRunner*>& contexts, const std::vector<Tensor>& inputs,
                            int repeats);

}  // namespace pare
