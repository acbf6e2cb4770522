// Clip: y = min(max, max(min, x)), element by element; min and max are scalar inputs of x's type.
//
// An input left out (or an empty name) is no bound on that side. NaN in x stays; where min > max, all of y is
// max. Every number type. Source: ONNX Clip-13.
#pragma once

#include "engine/ops/simd.h"

namespace pare {

PARE_SIMD_DECLARE(void clip_f32(const float* x, float lo, float hi, float* y, std::int64_t n))

class Registry;
void add_clip_kernels(Registry& registry);

}  // namespace pare
