// Slice's index rule on one axis (ONNX Slice-13), shared by the shape rule and the kernels.
#pragma once

#include <cstdint>

namespace pare {

struct SliceAxis {
  std::int64_t start = 0, step = 1, count = 0;  // elements start, start + step, ...; all inside the axis
};

// Negative start and end count from the back, then both are clamped: to [0, size] for step > 0, to
// [-1, size - 1] for step < 0. Nothing is left when start stands behind end. step must not be 0.
SliceAxis resolve_slice(std::int64_t start, std::int64_t end, std::int64_t step, std::int64_t size);

}  // namespace pare
