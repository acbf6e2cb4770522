#pragma once

#include <cstdint>

#include "engine/ops/simd.h"

namespace pare {

enum class VectorFunction { kExp, kTanh, kErf, kSigmoid, kGelu, kRelu, kHardSwish, kClip };

PARE_SIMD_DECLARE(void vector_math(VectorFunction function, const float* x, float* y, std::int64_t n))

}  // namespace pare
