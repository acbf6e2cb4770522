#include "quant/rounding_simd.h"

namespace pare::PARE_SIMD {
namespace {

using quant::RoundingGroup;
using quant::RoundingRow;
using quant::RoundingTrial;

constexpr int kSumLanes = 16;
constexpr float kNever = 3e38f;  // costs more than anything

// y += a x
PARE_INLINE void add_scaled(float a, const float* x, float* y, std::int64_t n) {
  const F32 factor = F32::set(a);
  transform2(x, y, y, n, [&](F32 u, F32 v) { return fma(factor, u, v); });
}

PARE_INLINE float dot(const float* a, const float* b, std::int64_t n) {
  float lane[kSumLanes] = {};
  std::int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes)
    for (int k = 0; k < kSumLanes; ++k) lane[k] = std::fma(a[i + k], b[i + k], lane[k]);
  for (int k = 0; i < n; ++i, ++k) lane[k] = std::fma(a[i], b[i], lane[k]);
  for (int half = kSumLanes / 2; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) lane[k] += lane[k + half];
  return lane[0];
}

// d_j becomes `error`; the slope follows.
PARE_INLINE void move(const RoundingRow& row, std::int64_t j, float error) {
  const float change = error - row.error[j];
  row.error[j] = error;
  add_scaled(change, row.gram + j * row.n, row.slope, row.n);
}

}  // namespace

std::int64_t rounding_sweep(const RoundingRow& row) {
  std::int64_t moved = 0;
  for (std::int64_t j = 0; j < row.n; ++j) {
    const float scale = row.scale[row.group[j]], zero = row.zero[row.group[j]];
    const float diagonal = row.gram[j * row.n + j];
    const float best = row.weight[j] - row.error[j] + row.slope[j] / diagonal;
    const float level = row.ladder.round(best / scale, zero);
    if (level == row.level[j]) continue;
    const float error = row.weight[j] - level * scale, change = error - row.error[j];
    if (!(change * (2 * row.slope[j] + change * diagonal) < 0)) continue;
    row.level[j] = level;
    move(row, j, error);
    ++moved;
  }
  return moved;
}

namespace {

// What a step up and a step down of each code do to d, and to the loss, alone. A step that the ladder does
// not have costs infinitely much.
struct Steps {
  float *up, *up_cost, *down, *down_cost;

  void fill(const RoundingRow& row) const {
    for (std::int64_t j = 0; j < row.n; ++j) {
      const float scale = row.scale[row.group[j]], zero = row.zero[row.group[j]];
      const float level = row.level[j];
      const float above = row.ladder.next(level, 1, zero), below = row.ladder.next(level, -1, zero);
      up[j] = row.weight[j] - above * scale - row.error[j];
      down[j] = row.weight[j] - below * scale - row.error[j];
      if (above == level) up[j] = 0;
      if (below == level) down[j] = 0;
      up_cost[j] = above == level ? kNever : 0;
      down_cost[j] = below == level ? kNever : 0;
    }
    price(row);
  }
  // Costs after the slope changed.
  void price(const RoundingRow& row) const {
    for (std::int64_t j = 0; j < row.n; ++j) {
      const float diagonal = row.gram[j * row.n + j];
      up_cost[j] = up_cost[j] >= kNever ? up_cost[j] : up[j] * (2 * row.slope[j] + up[j] * diagonal);
      down_cost[j] =
          down_cost[j] >= kNever ? down_cost[j] : down[j] * (2 * row.slope[j] + down[j] * diagonal);
    }
  }
};

// The least of cost[j] + 2 e step[j] gram[j] over both directions.
PARE_INLINE float least_partner(const Steps& s, const float* gram, float e, std::int64_t n) {
  float lane[kSumLanes];
  for (float& v : lane) v = kNever;
  const float twice = 2 * e;
  std::int64_t j = 0;
  for (; j + kSumLanes <= n; j += kSumLanes)
    for (int k = 0; k < kSumLanes; ++k) {
      const float cross = twice * gram[j + k];
      const float up = std::fma(cross, s.up[j + k], s.up_cost[j + k]);
      const float down = std::fma(cross, s.down[j + k], s.down_cost[j + k]);
      const float least = up < down ? up : down;
      lane[k] = least < lane[k] ? least : lane[k];
    }
  for (int k = 0; j < n; ++j, ++k) {
    const float cross = twice * gram[j];
    const float up = std::fma(cross, s.up[j], s.up_cost[j]);
    const float down = std::fma(cross, s.down[j], s.down_cost[j]);
    const float least = up < down ? up : down;
    lane[k] = least < lane[k] ? least : lane[k];
  }
  float least = lane[0];
  for (const float v : lane) least = v < least ? v : least;
  return least;
}

void step(const RoundingRow& row, std::int64_t j, int up) {
  const std::int32_t group = row.group[j];
  row.level[j] = row.ladder.next(row.level[j], up, row.zero[group]);
  move(row, j, row.weight[j] - row.level[j] * row.scale[group]);
}

}  // namespace

std::int64_t rounding_pairs(const RoundingRow& row) {
  const std::int64_t n = row.n;
  const Steps s = {row.room, row.room + n, row.room + 2 * n, row.room + 3 * n};
  s.fill(row);
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const int way = s.up_cost[i] <= s.down_cost[i] ? 1 : -1;
    const float e = way > 0 ? s.up[i] : s.down[i], cost = way > 0 ? s.up_cost[i] : s.down_cost[i];
    const float* gram = row.gram + i * n;
    // A step that costs more than this share of what it costs at a perfect start is left to its partners.
    constexpr float kPromising = 0.5f;
    if (!(cost < kPromising * (e * e * gram[i]))) continue;
    // i itself is no partner.
    const float own_up = s.up_cost[i], own_down = s.down_cost[i];
    s.up_cost[i] = s.down_cost[i] = kNever;
    const float least = least_partner(s, gram, e, n);
    std::int64_t partner = -1;
    int partner_way = 0;
    // A gain below the rounding of the sums is none.
    if (least + cost < -1e-5f * (cost > 0 ? cost : -cost)) {
      const float twice = 2 * e;
      for (std::int64_t j = 0; j < n && partner < 0; ++j) {
        const float cross = twice * gram[j];
        if (std::fma(cross, s.up[j], s.up_cost[j]) == least) {
          partner = j;
          partner_way = 1;
        } else if (std::fma(cross, s.down[j], s.down_cost[j]) == least) {
          partner = j;
          partner_way = -1;
        }
      }
    }
    s.up_cost[i] = own_up;
    s.down_cost[i] = own_down;
    if (partner < 0) continue;
    step(row, i, way);
    step(row, partner, partner_way);
    ++found;
    s.fill(row);
  }
  return found;
}

void rounding_refit(const RoundingRow& row, const RoundingGroup& group, const float* target,
                    const float* level, float* ht, float* hl) {
  *ht = *hl = 0;
  for (std::int64_t i = 0; i < group.size; ++i) {
    const float h = dot(row.gram + (group.begin + i) * row.n + group.begin, level, group.size);
    *ht = std::fma(h, target[i], *ht);
    *hl = std::fma(h, level[i], *hl);
  }
}

void rounding_accept(const RoundingRow& row, const RoundingGroup& group, const RoundingTrial& trial,
                     const float* level) {
  row.scale[row.group[group.begin]] = trial.scale;
  row.zero[row.group[group.begin]] = trial.zero;
  for (std::int64_t i = 0; i < group.size; ++i) {
    const std::int64_t j = group.begin + i;
    row.level[j] = level[i];
    const float error = row.weight[j] - level[i] * trial.scale;
    if (error != row.error[j]) move(row, j, error);
  }
}

}  // namespace pare::PARE_SIMD
