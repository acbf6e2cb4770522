// Data movement as arithmetic on views: what ONNX's movement operators do to sizes, strides and offset.
// Each gives false, and leaves the view alone, when the result has no strides (then the data must be copied
// first).
#pragma once

#include "engine/build/plan/engine_plan.h"

namespace pare {

bool view_reshape(PlanView& view, const Dims& dims);  // to sizes with the same product
void view_transpose(PlanView& view, const std::vector<std::int64_t>& perm);
void view_slice(PlanView& view, int axis, std::int64_t start, std::int64_t count, std::int64_t step);
void view_expand(PlanView& view, const Dims& dims);              // NumPy broadcasting to larger sizes
void view_select(PlanView& view, int axis, std::int64_t index);  // one index; the axis goes

}  // namespace pare
