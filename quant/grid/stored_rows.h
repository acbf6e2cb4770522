// Weights as a checkpoint stores them, [outs, ins] in 16 or 32 bits, quantized by rows: plain rounding and
// scale search need no more of a weight at a time than a few rows, so beside codes and scales there are 128
// KiB of floats a thread, whatever the size of the tensor, and those stay in the cache between steps.
//
// The bits are those of choose_grid() and encode() on the whole in float32.
#pragma once

#include "engine/base/tensor.h"
#include "quant/grid/grid.h"

namespace pare::quant {

struct StoredCodes {
  Grid grid;
  std::vector<std::uint8_t> codes;  // [outs, ins], one a byte; signed integers as int8
};

// `global`: of two-level formats, required there. Rows share nothing else. Errors: kBadFile for NaN or
// infinity; kUnsupported for a type that is no float.
StoredCodes quantize_stored(const GridFormat& format, const Tensor& weight, bool search, float global,
                            ThreadPool& pool);

// The same with one scale for all (grid.scales has one), and with one for every block of `tall` rows and
// `wide` columns (grid.scales is [blocks down, blocks across]; short blocks are filled with zeros). One
// level, no groups; blocks are symmetric. A search for one scale needs all floats at once.
StoredCodes quantize_stored_tensor(const GridFormat& format, const Tensor& weight, bool search,
                                   ThreadPool& pool);
StoredCodes quantize_stored_blocks(const GridFormat& format, const Tensor& weight, std::int64_t tall,
                                   std::int64_t wide, bool search, ThreadPool& pool);

// Largest magnitude. Error kBadFile for NaN or infinity.
float stored_amax(const Tensor& weight, ThreadPool& pool);

}  // namespace pare::quant
