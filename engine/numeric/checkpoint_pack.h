// How checkpoint formats of language models lay out codes of 2 to 8 bits. Codes are unsigned numbers, one a
// byte; signed formats add 2^(bits - 1) before packing (signed_to_code).
//
//   compressed-tensors  a row is one stream of bits over 32-bit
//                       words, the first code in the lowest bits; 3, 5,
//                       6 and 7 bits straddle words; the last word is filled with zeros. Zero points: the
//                       same stream down the output dimension
//   AutoAWQ gemm        4 bits: nibble i of word c holds column 8c + {0,2,4,6,1,3,5,7}[i]
//   GPTQ                codes a stream down the inputs, zero points along the outputs; version 1 stores
//                       (z - 1) mod 2^bits, version 2 stores z
//   Model Optimizer     INT4: the even output row in the low nibble, its odd neighbour in the high one
//
// Words are returned as written (int32 of the same bits). n * bits beyond 2^62, bits out of range: asserted.
// Sources: compressed-tensors pack_quantized, AutoAWQ packing utilities, AutoGPTQ and GPTQModel packers,
// NVIDIA Model Optimizer; golden vectors tests/golden/codecs.
#pragma once

#include <cstdint>
#include <vector>

namespace pare {

inline std::uint8_t signed_to_code(int value, int bits) {
  return static_cast<std::uint8_t>((value + (1 << (bits - 1))) & ((1 << bits) - 1));
}
inline int code_to_signed(std::uint8_t code, int bits) { return static_cast<int>(code) - (1 << (bits - 1)); }

inline std::int64_t stream_words(std::int64_t codes, int bits) { return (codes * bits + 31) / 32; }

// [rows, cols] codes -> [rows, stream_words(cols)].
std::vector<std::uint32_t> pack_rows(int bits, const std::uint8_t* codes, std::int64_t rows,
                                     std::int64_t cols);
std::vector<std::uint8_t> unpack_rows(int bits, const std::uint32_t* words, std::int64_t rows,
                                      std::int64_t cols);
// The same into and out of memory that is there already, without another copy. Before packing every code is
// changed by `flip` (2^(bits - 1) turns numbers of two's complement into signed_to_code()), after unpacking
// `less` is taken from it. Little-endian machines only, as is everything here.
void pack_rows(int bits, const std::uint8_t* codes, std::int64_t rows, std::int64_t cols, std::uint32_t* to,
               std::uint8_t flip = 0);
void unpack_rows(int bits, const std::uint32_t* words, std::int64_t rows, std::int64_t cols,
                 std::uint8_t* codes, int less = 0);
// [rows, cols] codes -> [stream_words(rows), cols]: streams down the columns.
std::vector<std::uint32_t> pack_columns(int bits, const std::uint8_t* codes, std::int64_t rows,
                                        std::int64_t cols);
std::vector<std::uint8_t> unpack_columns(int bits, const std::uint32_t* words, std::int64_t rows,
                                         std::int64_t cols);

// [rows, cols] bytes -> [cols, rows]; the ranges must not overlap.
void transpose_bytes(const std::uint8_t* from, std::int64_t rows, std::int64_t cols, std::uint8_t* to);

// [rows, cols] codes of 4 bits, cols a multiple of 8 -> [rows, cols / 8].
std::vector<std::uint32_t> pack_awq(const std::uint8_t* codes, std::int64_t rows, std::int64_t cols);
std::vector<std::uint8_t> unpack_awq(const std::uint32_t* words, std::int64_t rows, std::int64_t cols);

enum class GptqVersion { kV1, kV2 };
// [groups, outs] zero points, outs * bits a multiple of 32 -> [groups, outs * bits / 32]. Version 1 cannot
// hold a zero point of 0: Error kUnsupported.
std::vector<std::uint32_t> pack_gptq_zeros(int bits, GptqVersion version, const std::uint8_t* zeros,
                                           std::int64_t groups, std::int64_t outs);
std::vector<std::uint8_t> unpack_gptq_zeros(int bits, GptqVersion version, const std::uint32_t* words,
                                            std::int64_t groups, std::int64_t outs);

// [outs, ins] two's complement codes of 4 bits, outs even -> [outs / 2, ins] bytes.
std::vector<std::uint8_t> pack_modelopt_int4(const std::uint8_t* codes, std::int64_t outs, std::int64_t ins);
std::vector<std::uint8_t> unpack_modelopt_int4(const std::uint8_t* bytes, std::int64_t outs,
                                               std::int64_t ins);

}  // namespace pare
