// pare.WMatMul: a product whose weights stay codes of few bits; activations are float32.
//
//   y = act(a W + bias + residual)          a [..., M, K], W [K, N]
//
//   inputs  0 a  1 codes  2 scale  3 zero  4 bias [N]  5 residual (of y's shape)
//   codes, scale and zero are constants, in one of two forms:
//     elements  (attribute format "") codes of int4, uint4, int2, uint2, E2M1, int8 or uint8, [K, N] or with
//               trans_b = 1 [N, K]. scale float32: one element; N of them; or block_size along K, as codes
//               with ceil(K / block_size) in the place of K. zero: none, or as scale, of the type of codes.
//               W = scale * (code - zero), the bits of DequantizeLinear.
//     blocks    (format "Q4_0", "Q4_K" ...: engine/numeric/ggml_codes.h) codes uint8 [N, bytes of a row of K
//               elements in GGUF's blocks]; no scale, no zero. W as decoded there.
//   activation as in pare.MatMul.
//
// Each weight is made in float32, rounded as said, and enters the sum of gemm_f32.h: so y has the bits of
// DequantizeLinear and pare.MatMul, whatever M, the threads and the instruction class.
//
// Few rows (one, when a text is generated) read packed codes once, a panel of columns at a time, in vector
// lanes; more rows take a panel as floats first and multiply it as gemm_f32 does.
//
// pare.DecodeBlocks: uint8 [..., bytes] of the format "Q8_0" ... -> float32 [..., elements]. Attributes
// format, block and bytes (GgmlType).
#pragma once

#include <cstdint>
#include <string>

#include "engine/ops/activation.h"
#include "engine/ops/kernel.h"
#include "engine/ops/simd.h"

namespace pare {

struct GgmlCoding;
struct GgmlType;

struct WMatMulShape {
  std::int64_t m = 0, k = 0, n = 0;
  std::int64_t group = 0, groups = 0;             // along K; the last group may be shorter
  std::int64_t code_step_k = 0, code_step_n = 0;  // in elements
  std::int64_t scale_step_k = 0, scale_step_n = 0;
  const GgmlType* blocks = nullptr;  // the second form
  const GgmlCoding* coding = nullptr;
  Activation act;
};

// Whether it keeps codes of the type: integers of 8 bits and less, E2M1.
bool wmatmul_keeps(DType type);
// Resolves dims and attributes. "" or what is wrong with them.
std::string resolve_wmatmul(const OpCall& call, WMatMulShape& shape);
// Column n of W, K floats.
void decode_wmatmul_column(const OpCall& call, const WMatMulShape& shape, std::int64_t n, float* column);

// One panel of packed columns (wmatmul_panel() of them, the last panel fewer) against m rows of a.
// Of a panel, group after group: scales of all columns, zeros or offsets where there are any (each float32 or
// float16), codes: 4 bits: a word of 32 bits a column for every 8 of K, the first in the low bits; 8 bits: a
// byte a column for every one of K.
struct WMatMulTask {
  enum class Shift : std::uint8_t { kNone, kZero, kOffset };  // scale * (v - z), fma(scale, v, offset)

  const float* a = nullptr;
  std::int64_t lda = 0;
  const std::uint8_t* b = nullptr;
  float* c = nullptr;
  std::int64_t ldc = 0;
  std::int64_t m = 0, k = 0, n = 0, group = 0;  // n: columns of this panel
  int bits = 4;
  bool half = false;  // scales and the like
  Shift shift = Shift::kNone;
  const float* values = nullptr;  // 16, of 4-bit codes
  bool counted = false;           // values[i] = values[0] + i
  // Counted, and each weight of the panel has the bits of fma(scale, 2^e + code, addend), whose addend
  // (wmatmul_addend) float32 holds as it is: two instructions of the four or five that a weight takes fall
  // away.
  bool folded = false;
  const float* bias = nullptr;
  const float* residual = nullptr;
  std::int64_t ldr = 0;
  const Activation* act = nullptr;
};

// Bits 12 to 15 and 16 to 19 of a word below the exponents 11 and 7 are 2^e + code: floats without a
// conversion.
constexpr float kNearCode = 2048, kFarCode = 128;
// Whether scale * (first + code - other), or fma(scale, first + code, other) with kOffset, is fma(scale, 2^e
// + code, addend) in every bit (signs of zeros too) for both e and every code.
bool wmatmul_folds(WMatMulTask::Shift shift, float first, float scale, float other);

PARE_SIMD_DECLARE(int wmatmul_lanes())
PARE_SIMD_DECLARE(std::int64_t wmatmul_panel())
PARE_SIMD_DECLARE(void wmatmul_rows(const WMatMulTask& task))
// The panel as floats, packed as gemm_f32.h does: panels of gemm_panel() columns.
PARE_SIMD_DECLARE(void wmatmul_unpack(const WMatMulTask& task, float* packed))

class Registry;
void add_wmatmul_kernels(Registry& registry);
void add_wmatmul_references(Registry& registry);

}  // namespace pare
