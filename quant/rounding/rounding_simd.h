// Moves of learned rounding on one row (learned_rounding.h). Every sum runs over fixed lanes, so all
// instruction classes make the same moves.
//
// With d = w - level * scale and slope g = d G, the loss is d G d^T, and it changes by 2 e g_j + e^2 G_jj
// when d_j grows by e.
#pragma once

#include "engine/ops/simd.h"
#include "quant/grid/ladder.h"

namespace pare::quant {

struct RoundingRow {
  Ladder ladder;
  std::int64_t n = 0;
  const float* gram = nullptr;          // [n][n], positive diagonal
  const float* diagonal = nullptr;      // [n]: of gram
  const float* weight = nullptr;        // [n]
  const std::int32_t* group = nullptr;  // [n]
  float* level = nullptr;               // [n]
  float* error = nullptr;               // [n]: d
  float* slope = nullptr;               // [n]: g
  float* scale = nullptr;               // by group
  float* zero = nullptr;                // by group
  // Chains whose first step, and whose sum so far, cost more than these shares of what the first step costs
  // at a perfect start (d_j = 0) are given up.
  float first = 0.5f, further = 0.3f;
  float* room = nullptr;  // [4 n]
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
// Chains of two to twelve codes, each by one step, that lower the loss together: a code whose step costs
// little, the one that goes best with it, and so on while the sum stays low. Returns how many chains.
PARE_SIMD_DECLARE(std::int64_t rounding_chains(const ::pare::quant::RoundingRow& row))
// h = (block of the matrix) level; `ht` = h target, `hl` = h level: the best scale for the levels is ht / hl.
PARE_SIMD_DECLARE(void rounding_refit(const ::pare::quant::RoundingRow& row,
                                      const ::pare::quant::RoundingGroup& group, const float* target,
                                      const float* level, float* ht, float* hl))
// Takes levels and scale over.
PARE_SIMD_DECLARE(void rounding_accept(const ::pare::quant::RoundingRow& row,
                                       const ::pare::quant::RoundingGroup& group,
                                       const ::pare::quant::RoundingTrial& trial, const float* level))

}  // namespace pare
