// What the kernels on wgmma share (kernel_wgmma.cpp, kernel_pingpong.cpp).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/cuda/linear_code.h"

namespace pare::cuda {

struct WgmmaSetup {
  LinearSizes s;
  DType x = DType::kUndefined, w = DType::kUndefined;
  int width = 1;  // neighbours that the epilogue takes
};

// "" and the setup, or why wgmma and the bulk copy engine cannot do this product.
std::string wgmma_setup(const EnginePlan& plan, const PlanLayer& layer, WgmmaSetup& setup);

// Barriers, copies by the bulk copy engine and wgmma_ for tiles of n columns; a cluster of `cluster` blocks.
std::string wgmma_helpers(const WgmmaSetup& setup, int n, int cluster);

// Tiles of `box` rows of a view [batch, rows, k].
TensorMap wgmma_map(int slot, DType type, const LinearSizes& s, std::int64_t rows, std::int64_t pitch,
                    std::int64_t step, int box);

}  // namespace pare::cuda
