// Moves of learned rounding on one row (learned_rounding.h). Every sum runs over fixed lanes, so all
// instruction classes make the same moves.
//
// With d = w - level * scale and slope g = d G, the loss is d G d^T, and it changes by 2 e g_j + e^2 G_jj
// when d_j grows by e.
#pragma once

#include "engine/ops/simd.h"
#include "quant/ladder.h"

namespace pare::quant {

struct RoundingRow {
  Ladder ladder;
  std::int64_t n = 0;
  const float* gram = nullptr;          // [n][n], positive diagonal
  const float* weight = nullptr;        // [n]
  const std::int32_t* group = nullptr;  // [n]
  float* level = nullptr;               // [n]
  float* error = nullptr;               // [n]: d
  float* slope = nullptr;               // [n]: g
  float* scale = nullptr;               // by group
  float* zero = nullptr;                // by group
  float* room = nullptr;                // [4 n]
};

// The columns of one group.
struct RoundingGroup {
  std::int64_t begin = 0, size = 0;
};

// A scale (and zero point) to try for a group.
struct RoundingTrial {
  float scale = 1, zero = 0;
};

}  // namespace pare::quant

namespace pare {

// One code after the other to its best value, the others fixed. Returns how many moved.
PARE_SIMD_DECLARE(std::int64_t rounding_sweep(const ::pare::quant::RoundingRow& row))
// Two codes at once, each by one step, where that helps and neither helps alone: the first a code whose step
// costs little, the second any. Returns how many pairs.
PARE_SIMD_DECLARE(std::int64_t rounding_pairs(const ::pare::quant::RoundingRow& row))
// h = (block of the matrix) level; `ht` = h target, `hl` = h level: the best scale for the levels is ht / hl.
PARE_SIMD_DECLARE(void rounding_refit(const ::pare::quant::RoundingRow& row,
                                      const ::pare::quant::RoundingGroup& group, const float* target,
                                      const float* level, float* ht, float* hl))
// Takes levels and scale over.
PARE_SIMD_DECLARE(void rounding_accept(const ::pare::quant::RoundingRow& row,
                                       const ::pare::quant::RoundingGroup& group,
                                       const ::pare::quant::RoundingTrial& trial, const float* level))

}  // namespace pare
