// AWQ's clipping: for every group of a row the range whose codes do least harm behind the layer's inputs.
//
//   loss of a group   d G_bb d^T, d the error of the group's
//                     weights, G_bb the diagonal block of E[x x^T] of its
//                     columns: errors of other groups count as uncorrelated
//   candidates        the range of the largest magnitude times 1, 0.95 ... 0.5 (asymmetric: both ends)
//
// The scales are rounded as they will be written; two-level formats keep the global scale of amax_grid; E8M0
// allows few of the candidates. Source: arXiv 2306.00978, with the block of the Gram matrix in place of
// samples.
#pragma once

#include <vector>

#include "engine/base/thread_pool.h"
#include "quant/grid/grid.h"

namespace pare::quant {

// `grams`: E[x x^T] of each convolution group, [cols, cols] row by row; rows are shared out among them in
// order. Error kBadFile for NaN or infinity in a weight.
Grid clip_grid(const GridFormat& format, const RowShape& shape, const float* weight,
               const std::vector<std::vector<float>>& grams, ThreadPool& pool);

}  // namespace pare::quant
