// Inputs for a model when nobody gave any: to compare a graph before and after a change, never to calibrate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/run/session.h"

namespace pare {

struct GeneratedSizes {
  std::int64_t batch = 1;   // of a symbol that is the first size of some input
  std::int64_t other = 8;   // of every other symbol
  bool first_only = false;  // only in the first input with open sizes; `batch` in those behind it
};

// Floats from N(0,1), seeded; booleans both; integers below the number of rows where they index a constant
// (Gather), the constant that they are compared with, or 1 to 3. False, with a reason: a type for which
// nothing is made.
bool generate_inputs(const Graph& graph, const GeneratedSizes& sizes, std::uint64_t seed,
                     std::vector<Tensor>& inputs, std::string& why_not);

bool has_open_batch(const Graph& graph);  // some input's first size is a symbol or unknown

struct GeneratedRun {
  bool done = false;
  std::string why_not;  // when not done
  std::vector<Tensor> inputs, outputs;
};

// Tries sizes for open symbols (sizes.other first) until the session runs; `sizes` says with which it did.
// Errors of kind kInternal pass.
GeneratedRun run_on_generated(Session& session, GeneratedSizes& sizes, std::uint64_t seed);

}  // namespace pare
