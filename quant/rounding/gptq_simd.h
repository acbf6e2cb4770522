// The inner loop of GPTQ (gptq.h): a block of columns, kGptqRows rows side by side.
#pragma once

#include "engine/ops/simd.h"
#include "quant/grid/ladder.h"

namespace pare::quant {

constexpr std::int64_t kGptqRows = 32, kGptqColumns = 64;

struct GptqBlock {
  Ladder ladder;
  std::int64_t columns = 0;       // at most kGptqColumns
  const float* weight = nullptr;  // [columns][kGptqRows]
  const float* scale = nullptr;   // [columns][kGptqRows]
  const float* zero = nullptr;    // [columns][kGptqRows]
  const float* upper = nullptr;   // upper[i * upper_stride + j]: R_ij / R_jj of the block
  std::int64_t upper_stride = 0;
  float* feedback = nullptr;  // [columns][kGptqRows]: from columns before; garbage afterwards
  float* level = nullptr;     // out [columns][kGptqRows]
  float* error = nullptr;     // out [columns][kGptqRows]: weight - level * scale
  // Where given: loss[r] += sum over columns of pivot (error + feedback)^2, [kGptqRows].
  const float* pivot = nullptr;  // [columns]: R_jj^2
  float* loss = nullptr;
};

}  // namespace pare::quant

namespace pare {
PARE_SIMD_DECLARE(void gptq_block(const ::pare::quant::GptqBlock& block))
}  // namespace pare
