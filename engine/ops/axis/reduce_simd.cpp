#include "engine/ops/axis/reduce.h"

#include "engine/ops/rows_simd.h"

namespace pare::PARE_SIMD {
namespace {

PARE_INLINE F32 combine(RowReduction kind, F32 all, F32 x) {
  switch (kind) {
    case RowReduction::kSum:
      return all + x;
    case RowReduction::kSumAbs:
      return all + abs(x);
    case RowReduction::kSumSquare:
      return all + x * x;
    case RowReduction::kMax:
      return select(is_nan(all), all, select(less(x, all), all, x));
    case RowReduction::kMin:
      return select(is_nan(all), all, select(less(all, x), all, x));
  }
  return all;
}

PARE_INLINE float start(RowReduction kind) {
  return kind == RowReduction::kMax   ? -__builtin_inff()
         : kind == RowReduction::kMin ? __builtin_inff()
                                      : 0.0f;
}

PARE_INLINE void columns_of(RowReduction kind, const float* x, std::int64_t n, std::int64_t inner,
                            std::int64_t begin, std::int64_t end, float* y) {
  for (std::int64_t c = begin; c < end; c += F32::kLanes) {
    const int k = end - c < F32::kLanes ? static_cast<int>(end - c) : F32::kLanes;
    F32 all = F32::set(start(kind));
    if (k == F32::kLanes)
      for (std::int64_t i = 0; i < n; ++i) all = combine(kind, all, F32::load(x + i * inner + c));
    else
      for (std::int64_t i = 0; i < n; ++i) all = combine(kind, all, F32::load(x + i * inner + c, k));
    all.store(y + c, k);
  }
}

// The order of Max and Min does not show in the result, but for the sign of a zero: the lanes are those of a
// sum.
float extreme(RowReduction kind, const float* x, std::int64_t n) {
  float lanes[kSumLanes];
  for (float& lane : lanes) lane = start(kind);
  const std::int64_t whole = n / kSumLanes;
  if (whole > 0) columns_of(kind, x, whole, kSumLanes, 0, kSumLanes, lanes);
  const auto fold = [kind](float a, float b) {
    if (a != a || b != b) return a != a ? a : b;
    return kind == RowReduction::kMax ? (b < a ? a : b) : (a < b ? a : b);
  };
  for (std::int64_t i = whole * kSumLanes; i < n; ++i)
    lanes[i % kSumLanes] = fold(lanes[i % kSumLanes], x[i]);
  for (int width = kSumLanes / 2; width > 0; width /= 2)
    for (int k = 0; k < width; ++k) lanes[k] = fold(lanes[k], lanes[k + width]);
  return lanes[0];
}

}  // namespace

float reduce_row(RowReduction kind, const float* x, std::int64_t n) {
  switch (kind) {
    case RowReduction::kSum:
      return row_sum(n, [=](std::int64_t i, int k) { return F32::load(x + i, k); });
    case RowReduction::kSumAbs:
      return row_sum(n, [=](std::int64_t i, int k) { return abs(F32::load(x + i, k)); });
    case RowReduction::kSumSquare:
      return row_sum(n, [=](std::int64_t i, int k) {
        const F32 v = F32::load(x + i, k);
        return v * v;
      });
    default:
      return extreme(kind, x, n);
  }
}

void reduce_columns(RowReduction kind, const float* x, std::int64_t n, std::int64_t inner, std::int64_t begin,
                    std::int64_t end, float* y) {
  switch (kind) {  // one loop each, so that the choice is made outside of it
    case RowReduction::kSum:
      return columns_of(RowReduction::kSum, x, n, inner, begin, end, y);
    case RowReduction::kSumAbs:
      return columns_of(RowReduction::kSumAbs, x, n, inner, begin, end, y);
    case RowReduction::kSumSquare:
      return columns_of(RowReduction::kSumSquare, x, n, inner, begin, end, y);
    case RowReduction::kMax:
      return columns_of(RowReduction::kMax, x, n, inner, begin, end, y);
    case RowReduction::kMin:
      return columns_of(RowReduction::kMin, x, n, inner, begin, end, y);
  }
}

}  // namespace pare::PARE_SIMD
