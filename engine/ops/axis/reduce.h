// Reductions over a set of axes (an input; none or empty: all axes, unless noop_with_empty_axes).
//
//   ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd
//   ReduceL1 sum |x|   ReduceL2 sqrt(sum x^2)   ReduceSumSquare sum x^2   ReduceLogSum log(sum x)
//   ReduceLogSumExp  m + log(sum exp(x - m)), m the largest
//   ArgMax, ArgMin (one axis; the first one, or with select_last_index the last)
//   CumSum, CumProd (axis an input; exclusive, reverse), TopK (largest, ties to the lower index)
//
// No elements: Sum 0, Prod 1, Max the lowest value (floats -inf), Min the largest, Mean NaN. NaN wins in Max
// and Min. Integers are summed in 64 bits and wrap; their means are cut towards zero. The reference sums in
// double in ascending order; the vector kernels of Sum, Mean, SumSquare, L1, L2, Max and Min sum float32 rows
// as rows_simd.h says, and columns in ascending order. Source: the ONNX operator specification, opset 25.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/ops/simd.h"

namespace pare {

class Registry;
struct OpCall;

enum class RowReduction : std::uint8_t { kSum, kSumAbs, kSumSquare, kMax, kMin };

// Of n contiguous floats.
PARE_SIMD_DECLARE(float reduce_row(RowReduction kind, const float* x, std::int64_t n))
// [n, inner] to [inner], columns [begin, end).
PARE_SIMD_DECLARE(void reduce_columns(RowReduction kind, const float* x, std::int64_t n, std::int64_t inner,
                                      std::int64_t begin, std::int64_t end, float* y))

// Why input 0 is no tensor of numbers; "" when it is.
std::string why_no_numbers(const OpCall& call);
// The axes of a Reduce* call, one flag an axis of the input. All false: nothing is reduced.
std::vector<bool> reduced_axes(const OpCall& call);

void add_reduce_kernels(Registry& registry);
void add_reduce_references(Registry& registry);
void add_axis_references(Registry& registry);  // ArgMax, ArgMin, CumSum, CumProd, TopK

}  // namespace pare
