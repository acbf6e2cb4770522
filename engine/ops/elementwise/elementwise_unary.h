// One number in, one number out. y = f(x) for each element, dtype and shape kept (IsNaN, IsInf, Not: bool).
//
//   Abs |x|   Neg -x   Sign -1, 0, 1   Reciprocal 1/x   Sqrt   Exp   Log   Erf
//   Ceil Floor Round (ties to even)
//   Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh
//   Sigmoid       1 / (1 + exp(-x))
//   Relu          x < 0 ? 0 : x                    so -0 stays -0 and NaN stays NaN
//   LeakyRelu     x < 0 ? alpha x : x              alpha 0.01
//   ThresholdedRelu  x > alpha ? x : 0             alpha 1
//   Elu           x < 0 ? alpha (exp(x) - 1) : x   alpha 1
//   Celu          max(0, x) + min(0, alpha (exp(x / alpha) - 1))
//   Selu          gamma (x <= 0 ? alpha (exp(x) - 1) : x)     alpha 1.67326..., gamma 1.05070...
//   Softplus      log(1 + exp(x))   Softsign x / (1 + |x|)   Mish x tanh(softplus(x))
//   HardSigmoid   max(0, min(1, alpha x + beta))   alpha 0.2, beta 0.5
//   HardSwish     x HardSigmoid(x; 1/6, 1/2)
//   Swish         x sigmoid(alpha x)               alpha 1
//   Gelu          x/2 (1 + erf(x / sqrt 2)); approximate = tanh: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715
//   x^3))) Shrink        x < -lambd ? x + bias : x > lambd ? x - bias : 0 IsNaN, IsInf (detect_positive,
//   detect_negative), Not, BitwiseNot
//
// float64 is computed in double; float16 and bfloat16 in float32 and rounded once at the end. NaN gives NaN.
// Integers: Abs, Neg, Sign, Relu, BitwiseNot; the least value wraps (two's complement).
// Source: the ONNX operator specification, opset 25.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/ops/simd.h"

namespace pare {

class Registry;
struct Node;

enum class UnaryOp : std::uint8_t {
  kAbs,
  kAcos,
  kAcosh,
  kAsin,
  kAsinh,
  kAtan,
  kAtanh,
  kCeil,
  kCelu,
  kCos,
  kCosh,
  kElu,
  kErf,
  kExp,
  kFloor,
  kGelu,
  kGeluTanh,
  kHardSigmoid,
  kHardSwish,
  kLeakyRelu,
  kLog,
  kMish,
  kNeg,
  kReciprocal,
  kRelu,
  kRound,
  kSelu,
  kShrink,
  kSigmoid,
  kSign,
  kSin,
  kSinh,
  kSoftplus,
  kSoftsign,
  kSqrt,
  kSwish,
  kTan,
  kTanh,
  kThresholdedRelu
};

struct UnaryParams {
  UnaryOp op = UnaryOp::kAbs;
  float alpha = 0, beta = 0;  // Selu: beta is gamma; Shrink: lambd and bias
};

struct UnaryName {
  std::string_view name;  // the ONNX operator
  UnaryOp op;
};
const UnaryName* unary_names(int& count);

// False when the node is none of these.
bool unary_params(const Node& node, UnaryParams& out);
// The formula, in double.
double unary_value(const UnaryParams& params, double x);
// Does unary_f32 know it?
bool has_unary_f32(UnaryOp op);
// y may be x. Errors of a few units in the last place at most (vector_math.h); Gelu as said there.
PARE_SIMD_DECLARE(void unary_f32(const UnaryParams& params, const float* x, float* y, std::int64_t n))

void add_elementwise_unary_kernels(Registry& registry);  // vector, then scalar code on all threads
void add_elementwise_unary_reference(Registry& registry);

}  // namespace pare
