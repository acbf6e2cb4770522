// Array conversion between float32 and every format of the table, and casts between any two number types.
//
// encode() and decode() use the best vector instructions that isa() allows and give, bit for bit, what the
// scalar functions of the format's header give. They run on the calling thread: callers split the work (at
// multiples of 8 elements, so that packed formats split at whole bytes).
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/base/tensor.h"
#include "engine/numeric/e8m0.h"

namespace pare {

// float32 -> codes, packed as a tensor is. Rounding, saturation, NaN and -0: the format's header. `saturate`
// matters only for the FP8 formats and E8M0 (ONNX's attribute of that name). For types with
// FormatInfo::encode; else error kUnsupported. Any alignment of `codes`; the arrays must not overlap.
void encode(DType to, const float* values, void* codes, std::int64_t n, bool saturate = true);

// Codes -> float32, exact for every format. For types with FormatInfo::decode.
void decode(DType from, const void* codes, float* values, std::int64_t n);

// Through the format and back: y = decode(encode(x)). y may be x.
void round_through(DType format, const float* x, float* y, std::int64_t n, bool saturate = true);

struct CastOptions {
  bool saturate = true;  // FP8 and E8M0 only
  E8m0Round round = E8m0Round::kUp;
};

// ONNX Cast of a whole tensor. `in` and `out` have equal element counts; memory of `in` needs no alignment.
//   float -> float: rounded once, ties to even, also from float64 and 64 bit integers (no double rounding);
//     beyond the largest: infinity, except FP8, E2M1 and E8M0, whose headers say what happens.
//   float -> integer: cut towards zero, then the
//     low bits kept, as NumPy and ONNX's node tests have it (300 -> uint8
//     gives 44); beyond the 64 bit integers: the nearest end of the target's range. NaN: 0. (ONNX leaves all
//     of these undefined. Saturating, rounding quantizers are in quantize.h.)
//   integer -> integer: low bits kept (two's complement). bool -> number: 0 or 1.
//   number -> bool: false only for 0 and -0; NaN is true.
// Error kUnsupported for strings and complex types.
void convert(const TensorView& in, const TensorView& out, const CastOptions& options = {});

}  // namespace pare
