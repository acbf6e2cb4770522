// Pooling on plain (channels-first) tensors of one to three spatial axes.
//
//   MaxPool            the largest value of each window; optional second output: its flat index in the whole
//                      tensor (storage_order 1: the last two axes swapped). NaN wins. All number types
//   AveragePool        the mean of each window; padding counts only with count_include_pad, and what
//                      ceil_mode adds behind the padding never counts
//   LpPool             (sum |x|^p)^(1/p)
//   Global*            the same over all spatial axes, which become 1
//
// Nothing counted (an empty plane, a dilated window wholly in padding): Max the lowest value of its type, the
// mean NaN as ReduceMean's and in onnx's reference, Lp 0. ONNX leaves it open, and ONNX Runtime refuses empty
// planes.
//
// Sums in double in ascending order, rounded once; those of the vector kernels in float32. Source: ONNX
// MaxPool-22, AveragePool-22, LpPool-22.
#pragma once

#include <array>
#include <cstdint>

#include "engine/ops/simd.h"

namespace pare {

class Registry;
struct OpCall;

// Sizes of a pool over [planes, depth, height, width]; what is not there is 1.
using PlaneSizes = std::array<std::int64_t, 3>;

struct PlanePool {
  std::int64_t planes = 0;
  PlaneSizes in = {1, 1, 1}, out = {1, 1, 1}, kernel = {1, 1, 1}, stride = {1, 1, 1}, dilation = {1, 1, 1};
  PlaneSizes begin = {0, 0, 0}, end = {0, 0, 0};
};

bool is_global_pool(const OpCall& call);
PlanePool plane_pool(const OpCall& call);  // at most three spatial axes
inline std::int64_t volume(const PlaneSizes& t) { return t[0] * t[1] * t[2]; }

// y[i] = y[i] + x[i * step], or with `largest` the larger of both, where NaN wins; n of them.
PARE_SIMD_DECLARE(void pool_row(bool largest, const float* x, std::int64_t step, float* y, std::int64_t n))

void add_pool_kernels(Registry& registry);  // float32: global ones, and MaxPool and AveragePool row by row
void add_pool_references(Registry& registry);

}  // namespace pare
