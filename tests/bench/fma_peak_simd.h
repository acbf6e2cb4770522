// The most fused multiply-adds that one core can do: 12 independent chains in registers.
#pragma once

#include <cstdint>

#include "engine/ops/simd.h"

namespace pare {

// 12 * steps * fma_lanes() multiply-adds.
PARE_SIMD_DECLARE(float fma_chains(std::int64_t steps))
PARE_SIMD_DECLARE(int fma_lanes())

}  // namespace pare
