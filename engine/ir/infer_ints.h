// Follows small integer tensors through a graph, so that a shape computed from a shape is known: Shape ->
// Gather -> Mul -> Concat -> Reshape. Elements are numbers or symbols (SymInt).
#pragma once

#include <vector>

#include "engine/ir/schema.h"

namespace pare {

inline constexpr std::int64_t kMaxFollowed = 1024;  // longer tensors are data, not shapes

// The elements of output 0, when the operator is one that moves or computes sizes and enough is known of its
// inputs. `out_shape` (rank 0 or 1) is what the operator's rule gave. Arithmetic keeps a symbol where it
// changes nothing (x + 0, x * 1, x / 1); a size is never negative, so a symbol never equals a negative
// number.
bool follow_ints(InferContext& ctx, const Shape& out_shape, std::vector<SymInt>& out);

}  // namespace pare
