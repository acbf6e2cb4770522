// Scales of least squared error for rows that have one scale each.
//
// The search tries the scale of the largest magnitude times each factor of a list, and, for integers, ends
// with the least-squares scale of the best codes. Codes are always computed from the float32 scale that is
// written. Sums run in double over eight fixed lanes, so every machine chooses the same scale.
#pragma once

#include "quant/grid/grid.h"

namespace pare::quant {

// `grid` is amax_grid()'s; its scales are replaced. Symmetric formats with float32 scales, one a row.
void search_rows(const GridFormat& format, const RowShape& shape, const float* weight, Grid& grid,
                 ThreadPool& pool);

}  // namespace pare::quant
