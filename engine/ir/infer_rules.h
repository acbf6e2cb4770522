// What the inference rules of several operators share. Only schemas_*.cpp include this.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "engine/base/error.h"
#include "engine/ir/schema.h"
#include "engine/ir/window.h"

namespace pare {

// Multidirectional broadcasting (ONNX Broadcasting.md). An unknown size against a known one above 1 is that
// one: it can only be equal or 1. Two unknown sizes give an unknown one, unless they are the same symbol.
Shape broadcast(InferContext& ctx, const Shape& a, const Shape& b);
Shape broadcast_inputs(InferContext& ctx, int first, int last);  // inputs [first, last), absent ones skipped

// axis in [-rank, rank) made >= 0; else ctx.bad.
int checked_axis(InferContext& ctx, std::int64_t axis, int rank);
// All of them, ascending, duplicates refused.
std::vector<int> checked_axes(InferContext& ctx, const std::vector<std::int64_t>& axes, int rank);

// The elements of integer input i when every one is known.
bool known_ints(InferContext& ctx, int i, std::vector<std::int64_t>& out);
// The one element of an integer input of one element (rank 0 or 1).
bool known_int(InferContext& ctx, int i, std::int64_t& out);

// An input of sizes, as a shape; unranked when not even their number is known. ctx.bad on a negative one.
Shape sizes_input(InferContext& ctx, int i);

// Output 0 has dtype and shape of input i.
void same_as_input(InferContext& ctx, int i = 0);
// The element type in attribute `key` (a DType number), or `otherwise` when absent or 0.
DType dtype_attr(InferContext& ctx, const char* key, DType otherwise);
// All present inputs in the range must have one dtype; it comes back.
DType common_dtype(InferContext& ctx, int first, int last);

void need_rank(InferContext& ctx, int i, int rank);  // ranked inputs must have it exactly
void need_rank_at_least(InferContext& ctx, int i, int rank);

// Input i, when it is there and its sizes are known, has one element or as many as one of `also` says (of
// which an unknown one is any).
void need_one_or(InferContext& ctx, int i, std::initializer_list<Dim> also = {});

// The same size, or ctx.bad(what) when certainly not. The better known of the two comes back.
Dim unify(InferContext& ctx, const Dim& a, const Dim& b, const char* what);

Dim product(const Dim& a, const Dim& b);  // overflow and unknown: unknown; 1 and 0 keep symbols

// NumPy matmul: [.., m, k] x [.., k, n], ranks of 1 promoted and taken away again.
Shape matmul_shape(InferContext& ctx, const Shape& a, const Shape& b);
// [n, c, spatial...] and weight [m, c / group, kernel...] give [n, m, spatial...].
Shape conv_shape(InferContext& ctx, const Shape& data, const Shape& weight);

// [n, c, spatial...] and weight [c, m / group, kernel...] give [n, m, spatial...]: stride * (in - 1) +
// output_padding + extent - begin - end; auto_pad SAME: in * stride; output_shape as it is.
Shape conv_transpose_shape(InferContext& ctx, const Shape& data, const Shape& weight);
// Input i, when it is there, is [m], one element an output channel.
void need_bias(InferContext& ctx, int i, const Dim& m);

// Output size of a convolution or pool on one spatial axis, where the input's may be a symbol.
Dim window_size(InferContext& ctx, const Window& window, int axis, const Dim& in);

// Of QuantizeLinear, DequantizeLinear and pare.FakeQuant: the scale (input 1) is a scalar (or [1]), [size of
// the axis], or, with block_size B, the data's shape with the axis ceil(n / B) long. The zero point (2) has
// the scale's shape.
void check_scale(InferContext& ctx);

}  // namespace pare
