// What pare.QConv and pare.QMatMul have in common: inputs, attributes, and the finish of their sums.
//
//   slot  0 x           s8 | u8    activations
//         1 w           s8 | u8    weights (QMatMul: the second operand, which need not be constant)
//         2 x_scale     f32 [1]    > 0
//         3 x_zero      like x     optional: 0
//         4 w_scale     f32 [1] or one a column (output channel)
//         5 w_zero      like w     optional: 0; several must be equal
//         6 bias        f32 [columns]            optional
//         7 y_scale     f32 [1]    optional: y is float32 without it
//         8 y_zero      s8 | u8    with y_scale; its type is that of y
//         9 residual    f32, or s8 | u8 with the next two; the shape of y; optional
//        10 r_scale     f32 [1]
//        11 r_zero      like the residual, optional: 0
//
// Slots 2 to 8, 10 and 11 are constants. "[1]" is any shape with one element.
// Attributes: those of activation.h. The arithmetic is that of qgemm.h (exact sums) and qfinish.h.
#pragma once

#include <string>
#include <vector>

#include "engine/ops/integer/qfinish.h"
#include "engine/ops/integer/qgemm.h"
#include "engine/ops/kernel.h"

namespace pare {

enum QSlot : int {
  kQX,
  kQW,
  kQXScale,
  kQXZero,
  kQWScale,
  kQWZero,
  kQBias,
  kQYScale,
  kQYZero,
  kQResidual,
  kQResidualScale,
  kQResidualZero,
  kQSlots
};

// The rules both share; `k` products a sum, `columns` output channels.
std::string qlinear_why_not(const OpCall& call, std::int64_t k, std::int64_t columns);

// Type and zero point of the 8 bit operand in `slot`, zero point in `zero_slot`.
QType q_type(const OpCall& call, int slot, int zero_slot);

// The constant part of QFinish. Columns in `groups` equal groups, each padded to a multiple of 16 in scale
// and bias; finish_of() gives the view of one group.
struct QFinishPlan {
  std::vector<float> scale, bias;
  std::int64_t columns = 0, padded = 0;  // of one group
  QFinish constant;

  // y and residual: where the call's data are; rows are `row_stride` elements apart.
  QFinish finish_of(const OpCall& call, std::int64_t group, std::int64_t row_stride) const;
};
QFinishPlan plan_finish(const OpCall& call, std::int64_t columns, std::int64_t groups);

}  // namespace pare
