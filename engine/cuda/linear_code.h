// What the kernels of convolutions and products share.
#pragma once

#include "engine/cuda/kernel_source.h"

namespace pare::cuda {

// `void finish_(float* v, i64 column, i64 at)`: the epilogue over w neighbouring sums of one row; column and
// at (in the residual and output) are those of the first. Stores into out0. Its arguments are the kernel's,
// so it is a macro-like lambda in the kernel: put this text at its beginning.
std::string finish_code(const EnginePlan& plan, const PlanLayer& layer, int w);

// Most neighbours that bias, residual and output take as one vector, given `columns` and the row strides.
int epilogue_width(const EnginePlan& plan, const PlanLayer& layer, std::int64_t columns);

// One layer as m x n sums of k products.
struct LinearSizes {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldd = 0, ldr = 0;              // row strides in elements
  std::int64_t step_a = 0, step_b = 0, step_d = 0, step_r = 0;  // between batches
  bool conv = false;
};
LinearSizes linear_sizes(const PlanLayer& layer);

}  // namespace pare::cuda
