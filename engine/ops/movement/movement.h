// Data movement: elements of any type change places, none changes its value.
//
//   Reshape, Squeeze, Unsqueeze, Flatten, Identity, Dropout (inference)   the same bytes under other dims
//   Transpose     y[i_perm[0], i_perm[1], ...] = x[i_0, i_1, ...]; perm defaults to the axes reversed
//   Slice         starts, ends, axes, steps as in engine/ir/slice.h
//   Expand, Tile  repetition
//   Concat, Split along one axis
//   Pad           constant (value, default 0), edge, reflect (without the border), wrap; negative pads cut
//   ReverseSequence  the first lengths[batch] places of the time axis backwards, the others as they are
//   DepthToSpace (DCR, CRD), SpaceToDepth
//   Gather        y = x[.., indices, ..] on one axis; an index counts from the back when negative
//   GatherElements, GatherND, ScatterElements, ScatterND (reductions none, add, mul, min, max), Trilu;
//                 indices out of range: Error kBadFile
//   Shape, Size, ConstantOfShape, Range, Where, Trilu, EyeLike, OneHot
//
// Types of 4 and 2 bits are unpacked, moved as bytes and packed again (Transpose, Slice, Concat, Gather,
// Split, Expand); strings are not moved. Source: the ONNX operator specification, opset 25.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/ops/kernel.h"
#include "engine/ops/movement/strided_copy.h"

namespace pare {

// The operator as one strided copy. For Transpose, Slice, Expand and Tile.
bool movement_copy(const OpCall& call, StridedCopy& out);

std::vector<std::int64_t> split_sizes(const OpCall& call);  // one an output
Dims pad_begins(const OpCall& call);                        // of Pad, one an axis; negative ones cut
// The place in an axis of `size` elements that padded place `at` (from -begin on) shows; -1: the constant.
std::int64_t padded_source(std::int64_t at, std::int64_t size, const std::string& mode);

// Runs `run` on a call whose packed inputs and outputs are replaced by one byte an element.
void run_unpacked(const OpCall& call, void (*run)(const OpCall&));
bool is_packed(DType type);                                // 4 or 2 bits
std::string moved_type_reason(const OpCall& call, int i);  // "" for types of 1, 2, 4, 8 or 16 bytes

class Registry;
void add_movement_kernels(Registry& registry);
void add_pad_kernels(Registry& registry);
void add_gather_kernels(Registry& registry);
void add_cast_kernels(Registry& registry);
void add_shape_kernels(Registry& registry);
void add_movement_references(Registry& registry);

}  // namespace pare
