// Small graphs out of bytes, for fuzz targets that need something to run: float32, ranks 1 to 4, sizes 1 to
// 5, a chain with branches of up to eight nodes. What the shape rules refuse is left out, so every input
// gives a graph. Values are small multiples of 1/4, so that sums are exact or nearly so.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/tensor.h"
#include "engine/ir/graph.h"

namespace pare::fuzz {

struct Made {
  Graph graph;
  std::vector<Tensor> inputs;
};

// kSettled leaves out what shape rules and kernels take but ONNX gives no agreed meaning: windows
// (convolutions and pools) over an axis without elements, where ONNX Runtime refuses ("only N can be zero")
// and onnx's own shape rules round a negative quotient to one element of output. The same bytes give the same
// graph otherwise.
enum class Meaning : std::uint8_t { kAny, kSettled };

// No Error leaves it.
Made make_graph(const std::uint8_t* data, std::size_t size, Meaning meaning = Meaning::kAny);

// Equal within float rounding of some tens of operations: 1e-3 of the largest value, and 1e-5; infinities and
// NaN in the same places. Results beyond 1e6 amplify any rounding and pass.
bool close(const std::vector<Tensor>& a, const std::vector<Tensor>& b);

}  // namespace pare::fuzz
