// How many calibration tokens reached each layer: a mixture sends a token to some of its experts, and codes
// rest on what came.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recipes/quantize/layer_grams.h"

namespace pare {

struct ReachedLayer {
  std::string tensor;  // its weight; of several that read the same input the first
  std::uint64_t tokens = 0, of = 0, inputs = 0;
};

// The layers that fewer tokens reached than others, in the order of the layers. `notes` gets a sentence for
// those that fewer reached than they have inputs, and one for those that none reached: a large mixture has
// thousands.
std::vector<ReachedLayer> reached_layers(const Graph& graph, const quant::Placement& placement,
                                         const LayerGrams& grams, std::vector<std::string>& notes);

}  // namespace pare
