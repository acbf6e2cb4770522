// Copies elements from one set of strides to another: what Transpose, Slice, Expand, Concat, Split, Tile, Pad
// and DepthToSpace are made of.
//
//   out[out_offset + sum i_k out_strides[k]] = in[in_offset + sum i_k in_strides[k]]   for all i_k < dims[k]
//
// Strides count elements; those of the input may be 0 (repeat) or negative. The caller guarantees that all
// places lie inside both tensors and that no place of the output is named twice.
#pragma once

#include <cstdint>

#include "engine/base/tensor.h"
#include "engine/base/thread_pool.h"

namespace pare {

struct StridedCopy {
  Dims dims, in_strides, out_strides;
  std::int64_t in_offset = 0, out_offset = 0;
};

// element_bytes: 1, 2, 4, 8 or 16. Sizes of 1 are dropped and axes merged where both sides allow it; a copy
// that swaps rows and columns goes by tiles that fit the first-level cache.
void strided_copy(const StridedCopy& copy, int element_bytes, const void* in, void* out, ThreadPool& pool);

// Fills n elements with the element at `value`.
void fill_elements(const void* value, int element_bytes, void* out, std::int64_t n);

}  // namespace pare
