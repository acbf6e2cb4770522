// What the kernels share that hold windows in shared memory (kernel_window.cpp, kernel_strip.cpp).
//
// Without swizzling, wgmma reads an operand by pieces of 8 rows of 16 bytes, which stand anywhere. With
// pixels one after the other, 16 bytes of each (a plane for each 16 bytes of channels), eight neighbouring
// pixels are such a piece, and so are the eight that begin one pixel later: all windows overlap in memory and
// none is copied. Rows of a tile are therefore pixels of the padded image row after row; what stands over
// the edge is computed and not stored.
#pragma once

#include <string>

#include "engine/cuda/wgmma_code.h"

namespace pare::cuda {

struct WindowSetup {
  WgmmaSetup u;
  // Planes of 16 bytes of channels; taps: of a window's row, even when there is one plane; wide: pixels of a
  // padded row; chunks: of 16 bytes of k.
  std::int64_t planes = 1, taps = 1, wide = 0, chunks = 0;
};

// "" and the setup of a convolution of stride 1, or why not.
std::string window_setup(const EnginePlan& plan, const PlanLayer& layer, WindowSetup& setup);
// Bytes of a plane of that many rows of the output: what the last tile reads beyond them is there, too.
std::int64_t plane_bytes(const ConvGeometry& g, const WindowSetup& setup, std::int64_t rows);
// copy_ (16 bytes, asynchronously) and pieces_ (how an operand lies).
const char* window_helpers();

}  // namespace pare::cuda
