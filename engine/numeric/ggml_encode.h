// Floats into the block formats of GGUF files (ggml_blocks.h), as ggml's own reference does, bit by bit:
//
//   Q4_0   d = (signed value of the largest magnitude) / -8; code = min(15, trunc(x / d + 8.5))
//   Q4_1   d = (max - min) / 15, m = min; code = min(15, trunc((x - m) / d + 0.5))
//   Q8_0   d = amax / 127; code = round half away from zero (x / d)
//   Q4_K   of each 32 values scale and minimum by
//          21 grids of least squares, weighed by |x| + rms; both then in
//          six bits below d and dmin; codes again from those
//
// Codes come from the float32 scale before it is rounded to float16 (Q4_K: after), which is what the files of
// llama.cpp hold. x / d is a product with the reciprocal. Blocks of zeros have d = 0. NaN and infinities must
// not come in. Sources: github.com/ggml-org/llama.cpp, ggml-quants.c, quantize_row_*_ref; gguf 0.19
// quants.py.
#pragma once

#include <cstdint>

namespace pare {

void encode_q4_0(const float* x, std::uint8_t* blocks, std::int64_t count);
void encode_q4_1(const float* x, std::uint8_t* blocks, std::int64_t count);
void encode_q8_0(const float* x, std::uint8_t* blocks, std::int64_t count);
void encode_q4_k(const float* x, std::uint8_t* blocks, std::int64_t count);

// By the type's code in the file; nullptr: this type is not written.
using GgmlEncode = void (*)(const float* x, std::uint8_t* blocks, std::int64_t count);
GgmlEncode ggml_encoder(int code);

// A block of codes that exist already. `codes` are numbers of the format (Q4_0: 0..15, Q8_0: two's
// complement, MXFP4: E2M1); `scale` is float16 bits, or the E8M0 byte.
void pack_q4_0(const std::uint8_t* codes, std::uint16_t scale, std::uint8_t* block);
void pack_q8_0(const std::uint8_t* codes, std::uint16_t scale, std::uint8_t* block);
void pack_mxfp4(const std::uint8_t* codes, std::uint16_t scale, std::uint8_t* block);

}  // namespace pare
