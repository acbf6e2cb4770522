// Pooling on plain (channels-first) tensors of one to three spatial axes.
//
//   MaxPool            the largest value of each window; optional second output: its flat index in the whole
//                      tensor (storage_order 1: the last two axes swapped). NaN wins. All number types
//   AveragePool        the mean of each window; padding counts only with count_include_pad, and what
//   ceil_mode
//                      adds behind the padding never counts
//   LpPool             (sum |x|^p)^(1/p)
//   Global*            the same over all spatial axes, which become 1
//
// Sums in double in ascending order, rounded once. Source: ONNX MaxPool-22, AveragePool-22, LpPool-22.
#pragma once

namespace pare {

class Registry;
void add_pool_kernels(Registry& registry);  // the global ones, float32
void add_pool_references(Registry& registry);

}  // namespace pare
