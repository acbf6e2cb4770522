// Round to nearest as compressed-tensors computes it on bfloat16 weights: every quotient is rounded to
// bfloat16 before it becomes a code. What its files hold, bit by bit; quant/grid/grid.h, in float32, is
// slightly better.
//
//   kInt4, kInt4Zeros   groups: s = bf16(amax / 7.5), or bf16(bf16(max - min) / 15) over the range with 0
//   kFp8                rows: s = bf16(amax / 448)
//   kNvfp4              blocks of 16 below a multiplier G = bf16(2688 / amax of all); value = code * scale /
//   G kMxfp4              blocks of 32, the exponent of amax lifted a binade from a mantissa of 1.75 on
//
// An amax of 0: the scale is the smallest step of its type (bfloat16 2^-7, E4M3 0.125, E8M0 1), G is 1.
// Source: compressed-tensors' quantization functions on the CPU; golden vectors tests/golden/codecs.
#pragma once

#include <cstdint>
#include <vector>

namespace pare::quant {

enum class CtFormat { kInt4, kInt4Zeros, kFp8, kNvfp4, kMxfp4 };

struct CtQuantized {
  std::vector<std::uint8_t> codes;        // [rows, cols]; integers in two's complement, low 4 bits
  std::vector<std::uint16_t> scales;      // [rows, groups]: bfloat16 bits; E4M3 or E8M0 in the low byte
  std::vector<std::int32_t> zero_points;  // kInt4Zeros
  float global = 1;                       // kNvfp4: G
};

// `weight`: bfloat16 values widened. `group` divides cols; 0: the whole row. Error kBadFile for NaN,
// infinity.
CtQuantized ct_quantize(CtFormat format, const float* weight, std::int64_t rows, std::int64_t cols,
                        std::int64_t group);

}  // namespace pare::quant
