// Multidirectional broadcasting as rows: the axes of the output, merged as far as every input allows, and how
// far each input moves along them. The innermost axis has stride 1 or 0 in each input, so all the cases that
// matter (same shape; a scalar; [C] on the last axis; [C,1,1] a channel; [N,1,1,C] of squeeze-excite) are
// rows of vector-with-vector or vector-with-number.
#pragma once

#include <array>
#include <cstdint>

#include "engine/base/tensor.h"

namespace pare {

inline constexpr std::size_t kMaxBroadcastInputs = 3;

struct BroadcastPlan {
  std::size_t inputs = 0;
  Dims dims;                                      // merged; the last is the row length; never empty
  std::array<Dims, kMaxBroadcastInputs> strides;  // as many as dims; 0 where the input is repeated
  std::int64_t count = 0;                         // elements of the output

  std::int64_t row() const { return dims.back(); }
  bool repeats(std::size_t input) const { return strides[input].back() == 0; }  // one number a row
};

// Input dims broadcast to `out`. Absent inputs may be left out by the caller.
BroadcastPlan plan_broadcast(const Dims& out, const Dims* const* in, std::size_t inputs);

// Walks the pieces of rows that make up output elements [begin, end).
// row(output offset, input offsets, length): an input that repeats() gives one number for the whole length.
template <typename Row>
void for_each_row(const BroadcastPlan& plan, std::int64_t begin, std::int64_t end, Row&& row) {
  if (begin >= end) return;
  const std::size_t axes = plan.dims.size(), outer = axes - 1;
  Dims at(axes, 0);
  std::array<std::int64_t, kMaxBroadcastInputs> offset{};
  std::int64_t rest = begin;
  for (std::size_t axis = axes; axis-- > 0;) {
    at[axis] = rest % plan.dims[axis];
    rest /= plan.dims[axis];
    for (std::size_t k = 0; k < plan.inputs; ++k) offset[k] += at[axis] * plan.strides[k][axis];
  }
  for (std::int64_t where = begin; where < end;) {
    const std::int64_t left = plan.dims[outer] - at[outer];
    const std::int64_t length = left < end - where ? left : end - where;
    row(where, offset, length);
    where += length;
    if (where >= end) return;
    // The row is at its end: back to its start, then on to the next one.
    for (std::size_t k = 0; k < plan.inputs; ++k) offset[k] -= at[outer] * plan.strides[k][outer];
    at[outer] = 0;
    for (std::size_t axis = outer; axis-- > 0;) {
      for (std::size_t k = 0; k < plan.inputs; ++k) offset[k] += plan.strides[k][axis];
      if (++at[axis] < plan.dims[axis]) break;
      for (std::size_t k = 0; k < plan.inputs; ++k) offset[k] -= at[axis] * plan.strides[k][axis];
      at[axis] = 0;
    }
  }
}

}  // namespace pare
