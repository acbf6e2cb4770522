// The sliding window of convolutions and pools: attributes with their defaults filled in, and the sizes that
// follow. Shape rules and kernels read the same one (ONNX Conv-22, MaxPool-22, AveragePool-22).
//
//   effective kernel  e = (k - 1) * dilation + 1
//   NOTSET, VALID     out = floor((in + begin + end - e) / stride) + 1; ceil_mode: ceil, without windows that
//                     would start in the padding behind the input
//   SAME_UPPER/LOWER  out = ceil(in / stride); the padding
//                     needed for that is split evenly, and an odd element
//                     goes behind (UPPER) or in front (LOWER)
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

enum class AutoPad : std::uint8_t { kNotSet, kValid, kSameUpper, kSameLower };

struct Window {
  std::vector<std::int64_t> kernel, strides, dilations;  // one a spatial axis
  std::vector<std::int64_t> pads_begin, pads_end;        // zero with auto_pad until resolve_pads()
  AutoPad auto_pad = AutoPad::kNotSet;
  bool ceil_mode = false;

  int axes() const { return static_cast<int>(kernel.size()); }
  std::int64_t extent(int axis) const {  // the effective kernel
    const auto i = static_cast<std::size_t>(axis);
    return (kernel[i] - 1) * dilations[i] + 1;
  }
};

// Reads strides, dilations, pads, auto_pad, ceil_mode and, when present, kernel_shape (which must be `kernel`
// unless that is empty). Error kBadFile when a count does not fit, or a size is not in [1, 2^31] (pads: at
// least 0).
Window read_window(const Node& node, std::vector<std::int64_t> kernel);

// Output size for input size `in` >= 0; below 1 when the window does not fit.
std::int64_t window_output(const Window& window, int axis, std::int64_t in);

// Turns auto_pad into pads for these input sizes; auto_pad becomes kNotSet.
void resolve_pads(Window& window, const std::vector<std::int64_t>& in);

}  // namespace pare
