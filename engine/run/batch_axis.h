// Whether a graph treats the samples of a batch apart, so that a large batch may run in parts.
//
// The parts are what fits into cache: every layer of a large batch writes and reads its whole activations
// through main memory, those of a part stay close. Since kernels marked `invariant` compute each sample alike
// in any batch, the parts give the same bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

// Follows the samples through the graph. They are the first axis of every input, a symbol that all inputs
// share; each operator must be known to compute its samples from nothing but the same samples of its inputs
// (and constants, and sizes used as a shape), and they must be the first axis of every output. Conservative:
// an operator it does not know is a no. "" or the reason why the batch must stay whole.
std::string samples_stay_apart(const Graph& graph);

// How many samples of `batch` to run at a time: the largest divisor of it in [most / 2, most], else `most`;
// the batch itself when that is no more.
std::int64_t part_of_batch(std::int64_t batch, std::int64_t most);

// The most samples of a part: about 4 MB for the largest value, a multiple of 4, at least 8. 0 when a size
// other than the samples is not known.
std::int64_t samples_of_a_part(const Graph& graph);

}  // namespace pare
