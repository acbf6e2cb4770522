// Operators that no layer of a plan computes, written by such as have one.
//
//   before lowering, which fuses what comes out
//     Conv, MaxPool, AveragePool of one spatial axis   the same with an axis of 1 in front of it
//     ConvTranspose whose kernel is its stride         a 1x1 convolution to kH kW M channels, which move to
//     their pixels LSTM of at most kMostSteps steps                 one product for all steps, then a product
//     and a pointwise kernel each
//   after lowering
//     Resize                                           along each axis the weighted sum of rows taken by
//     number MaxPool, AveragePool on plain maps               channels-last, as the layers want them
//     GlobalMaxPool, reductions of other axes          those axes at the end, as one
//     Pad                                              Concat with a constant; reflect, edge, wrap: rows by
//     number
//
// The function stays the same, up to the order of sums (Resize: float32 between the axes). What has a form
// that is not listed (LSTM backwards, open sizes, tf_crop_and_resize) stays as it is, and the planner refuses
// it by name.
#pragma once

#include "engine/ir/graph.h"

namespace pare::planning {

constexpr std::int64_t kMostSteps = 128;

// Shapes must be inferred; values that come in have theirs only after infer_shapes.
void expand_before_lowering(Graph& graph);
// The same, of a lowered graph; shapes are inferred again inside.
void expand_lowered(Graph& graph);

}  // namespace pare::planning
