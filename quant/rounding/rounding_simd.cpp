#include "quant/rounding/rounding_simd.h"

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
    const float diagonal = row.diagonal[j];
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

  // Code j may be moved.
  void open(const RoundingRow& row, std::int64_t j) const {
    const float scale = row.scale[row.group[j]], zero = row.zero[row.group[j]], level = row.level[j];
    const float above = row.ladder.next(level, 1, zero), below = row.ladder.next(level, -1, zero);
    up[j] = above == level ? 0.0f : row.weight[j] - above * scale - row.error[j];
    down[j] = below == level ? 0.0f : row.weight[j] - below * scale - row.error[j];
    up_cost[j] = above == level ? kNever : 0.0f;
    down_cost[j] = below == level ? kNever : 0.0f;
  }
  // Code j stays what it is for now.
  void close(std::int64_t j) const { up_cost[j] = down_cost[j] = kNever; }
  // Costs by the present slope.
  void price(const RoundingRow& row) const {
    const float *slope = row.slope, *diagonal = row.diagonal;
    for (std::int64_t j = 0; j < row.n; ++j) {
      const float a = up[j] * (2 * slope[j] + up[j] * diagonal[j]);
      const float b = down[j] * (2 * slope[j] + down[j] * diagonal[j]);
      up_cost[j] = up_cost[j] < kNever ? a : kNever;
      down_cost[j] = down_cost[j] < kNever ? b : kNever;
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

struct Partner {
  std::int64_t column = -1;
  int way = 0;
  float cost = kNever;
};

// That of least cost beside a step by e of the column whose row of the matrix is `gram`; the first of equals.
PARE_INLINE Partner best_partner(const Steps& s, const float* gram, float e, std::int64_t n) {
  Partner best;
  best.cost = least_partner(s, gram, e, n);
  const float twice = 2 * e;
  for (std::int64_t j = 0; j < n && best.cost < kNever; ++j) {
    const float cross = twice * gram[j];
    const bool up = std::fma(cross, s.up[j], s.up_cost[j]) == best.cost;
    if (!up && std::fma(cross, s.down[j], s.down_cost[j]) != best.cost) continue;
    best.column = j;
    best.way = up ? 1 : -1;
    break;
  }
  return best;
}

void step(const RoundingRow& row, std::int64_t j, int up) {
  const std::int32_t group = row.group[j];
  row.level[j] = row.ladder.next(row.level[j], up, row.zero[group]);
  move(row, j, row.weight[j] - row.level[j] * row.scale[group]);
}

}  // namespace

std::int64_t rounding_chains(const RoundingRow& row) {
  const std::int64_t n = row.n;
  const Steps s = {row.room, row.room + n, row.room + 2 * n, row.room + 3 * n};
  for (std::int64_t j = 0; j < n; ++j) s.open(row, j);
  s.price(row);
  constexpr int kLongest = 12;
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const int way = s.up_cost[i] <= s.down_cost[i] ? 1 : -1;
    const float e = way > 0 ? s.up[i] : s.down[i], first = way > 0 ? s.up_cost[i] : s.down_cost[i];
    const float unit = e * e * row.diagonal[i];
    if (!(first < row.first * unit)) continue;
    const float own_up = s.up_cost[i], own_down = s.down_cost[i];
    s.close(i);
    Partner partner = best_partner(s, row.gram + i * n, e, n);
    float total = first + partner.cost;
    if (!(total < row.further * unit)) {
      s.up_cost[i] = own_up;
      s.down_cost[i] = own_down;
      continue;
    }
    // A gain below the rounding of the sums is none.
    const float enough = -1e-5f * unit;
    std::int64_t columns[kLongest];
    int ways[kLongest];
    int length = 1;
    columns[0] = i;
    ways[0] = way;
    step(row, i, way);
    while (true) {
      columns[length] = partner.column;
      ways[length++] = partner.way;
      step(row, partner.column, partner.way);
      s.close(partner.column);
      if (total < enough || length == kLongest) break;
      s.price(row);
      partner = best_partner(s, row.gram, 0.0f, n);
      total += partner.cost;
      if (!(total < row.further * unit)) break;
    }
    if (total < enough)
      ++found;
    else
      for (int k = length; k-- > 0;) step(row, columns[k], -ways[k]);
    for (int k = 0; k < length; ++k) s.open(row, columns[k]);
    s.price(row);
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
