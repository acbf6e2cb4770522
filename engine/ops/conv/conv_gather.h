// The windows of a convolution as rows of a matrix.
#pragma once

#include "engine/ops/conv/conv.h"
#include "engine/ops/simd.h"

namespace pare {

constexpr std::int64_t kGatherSlack = 4;

// Rows [begin, end) of group `g.group`'s windows: out[row][kh][kw][c], zeros outside of x. A row is one
// output position, counted over n, oy, ox. `out` must have room for kGatherSlack floats more.
PARE_SIMD_DECLARE(void gather_windows(const ConvGeometry& g, const float* x, std::int64_t group,
                                      std::int64_t begin, std::int64_t end, float* out))

}  // namespace pare
