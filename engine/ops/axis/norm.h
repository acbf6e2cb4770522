// Normalizations.
//
//   LayerNormalization     over axes [axis, rank): y = (x - mean) / sqrt(var + epsilon) * scale + bias;
//                          optional outputs mean and 1 / sqrt(var + epsilon). var = mean((x - mean)^2)
//   RMSNormalization       y = x / sqrt(mean(x^2) + epsilon) * scale
//   InstanceNormalization  over all spatial axes of one channel; scale and bias are [C]
//   GroupNormalization     over all spatial axes of C / num_groups channels; scale and bias are [C]
//   BatchNormalization     inference: (x - mean) / sqrt(var + epsilon) * scale + bias with given mean, var
//                          [C]; training: with those of the batch (population variance), and outputs
//                          running = running * momentum + batch * (1 - momentum)
//   LpNormalization        x / (sum |x|^p)^(1/p) along one axis; 0 where that is 0
//   LRN                    x / (bias + alpha / size sum x^2)^beta, over `size` neighbouring channels,
//                          (size - 1) / 2 of them (cut) in front
//   MeanVarianceNormalization  (x - mean) / sqrt(var) over `axes`, + 1e-9 below the root's line
//
// float16 and bfloat16 are computed in float32 (stash_type), float64 in double. References sum in double. The
// vector kernels take rows in float32 and sum as rows_simd.h says: mean first, then the squares of what is
// left, so a large mean costs no accuracy. Source: ONNX LayerNormalization-17, GroupNormalization-21, ...
#pragma once

#include <cstdint>

#include "engine/ops/simd.h"

namespace pare {

struct RowStatistics {
  float mean = 0, inverse = 1;  // inverse: 1 / sqrt(var + epsilon)
};

// Of n > 0 contiguous floats. centered = false: the mean is taken as 0 (RMSNormalization).
PARE_SIMD_DECLARE(RowStatistics row_statistics(const float* x, std::int64_t n, float epsilon, bool centered))
// y = (x - mean) * inverse * scale + bias; bias may be nullptr.
PARE_SIMD_DECLARE(void normalize_row(const float* x, RowStatistics statistics, const float* scale,
                                     const float* bias, float* y, std::int64_t n))
// y = x * factor + shift.
PARE_SIMD_DECLARE(void affine_row(const float* x, float factor, float shift, float* y, std::int64_t n))

class Registry;
void add_norm_kernels(Registry& registry);
void add_norm_references(Registry& registry);

}  // namespace pare
