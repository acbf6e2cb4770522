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
  int width = 1;           // neighbours that the epilogue takes
  int bytes = 128;         // of k in a row of a stage: a window's pixel may have no more than 64
  std::int64_t steps = 0;  // of that many bytes; a convolution goes over windows' pixels, then over channels
  // A shortcut's (wgmma_shortcut_setup): its steps, sizes and bytes stand for those above.
  std::int64_t short_steps = 0;
  LinearSizes short_s;
  WgmmaSetup other() const;
};

// "" and the setup, or why wgmma and the bulk copy engine cannot do this product.
std::string wgmma_setup(const EnginePlan& plan, const PlanLayer& layer, WgmmaSetup& setup);
// The same of a product with a shortcut: rows of a stage have as many bytes for both.
std::string wgmma_shortcut_setup(const EnginePlan& plan, const PlanLayer& layer, WgmmaSetup& setup);

// "true" when the second operand is a weight, which may be fetched before the kernel in front is done.
const char* early_weights(const EnginePlan& plan, const PlanLayer& layer);

// Barriers, copies by the bulk copy engine and wgmma_ for tiles of n columns; a cluster of `cluster` blocks.
std::string wgmma_helpers(const WgmmaSetup& setup, int n, int cluster);

// Tiles of `box` rows of x and of the weights.
TensorMap wgmma_x_map(const PlanLayer& layer, const WgmmaSetup& setup, int box);
TensorMap wgmma_w_map(const WgmmaSetup& setup, int box);
// A convolution's rows are gathered: what stands in front of the loop over steps (ROW is the tile's first
// row), and the fetch of one step ($STEP$) to address TO, for the blocks in MASK (0: this one). For products
// too.
std::string wgmma_rows_code(const PlanLayer& layer, const char* row);
std::string wgmma_fetch_code(const PlanLayer& layer, const WgmmaSetup& setup, const char* step,
                             const char* to, const char* row, const char* bar, const char* batch,
                             const char* mask);

}  // namespace pare::cuda
