// A linear node's weight as rows: one row an output channel, columns ordered (tap, input channel), so that
// groups of neighbouring input channels are neighbours. The order in which Gram matrices, grids (grid.h) and
// weight methods see every weight, whatever the operator's layout.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/tensor.h"
#include "quant/grid/grid.h"
#include "quant/grid/linear_weight.h"

namespace pare::quant {

struct WeightRows {
  RowShape shape;             // rows = outs, cols = taps * ins (of one convolution group), segment = ins
  std::vector<float> values;  // [rows, cols]
};

WeightRows gather_rows(const Tensor& weight, const WeightView& view);
// Back into the layout of the weight.
Tensor scatter_rows(const WeightRows& rows, const WeightView& view, const Dims& dims);
// One code a byte into a tensor of the format, packed as tensors are.
Tensor scatter_codes(DType dtype, const RowShape& shape, const std::uint8_t* codes, const WeightView& view,
                     const Dims& dims);

}  // namespace pare::quant
