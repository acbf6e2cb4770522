// Two numbers in, one out, inputs broadcast against each other (ONNX Broadcasting.md).
//
//   Add Sub Mul Div Pow Mod Min Max Sum Mean       dtype of the inputs (Pow: of the base)
//   Less LessOrEqual Greater GreaterOrEqual Equal  bool; anything against NaN is false
//   And Or Xor (bool)   BitwiseAnd BitwiseOr BitwiseXor BitShift (integers)
//   PRelu  x < 0 ? slope * x : x
//
// Min, Max, Sum and Mean take any number of inputs, folded from the left: ((a + b) + c); Mean divides the sum
// by their number. Min and Max give NaN when either is NaN.
//
// float16 and bfloat16 are computed in float32 and rounded after every operation's end; a fold of three
// inputs stays in float32 until the last. Integers wrap. Integer division cuts towards zero; x / 0 is 0 and
// so is x mod 0, as the specification leaves them open and a trap is no answer. Mod: fmod 0 takes the sign of
// the divisor (integers; floats are accepted too), fmod 1 the sign of the dividend (C fmod). Integer Pow with
// a negative exponent is 0, except of 1 and -1; a shift by the width of the type or more gives 0. Source: the
// ONNX operator specification, opset 25.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/ops/simd.h"

namespace pare {

class Registry;
struct Node;

enum class BinaryOp : std::uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kPow,
  kMod,
  kFmod,
  kMin,
  kMax,
  kPRelu,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kEqual,
  kAnd,
  kOr,
  kXor,
  kBitwiseAnd,
  kBitwiseOr,
  kBitwiseXor,
  kShiftLeft,
  kShiftRight
};

struct BinaryName {
  std::string_view name;  // the ONNX operator
  BinaryOp op;
};
const BinaryName* binary_names(int& count);  // Sum and Mean are kAdd
bool binary_op(const Node& node, BinaryOp& out);
bool is_comparison(BinaryOp op);
bool is_logical(BinaryOp op);  // And, Or, Xor
bool is_bitwise(BinaryOp op);

// The formula. Doubles for every floating type, the integer type T for integers.
double binary_value(BinaryOp op, double a, double b);
template <typename T>
T integer_binary_value(BinaryOp op, T a, T b);  // elementwise_binary.cpp has the instances
bool compare_values(BinaryOp op, double a, double b);
template <typename T>
bool compare_integers(BinaryOp op, T a, T b) {
  switch (op) {
    case BinaryOp::kLess:
      return a < b;
    case BinaryOp::kLessOrEqual:
      return a <= b;
    case BinaryOp::kGreater:
      return a > b;
    case BinaryOp::kGreaterOrEqual:
      return a >= b;
    default:
      return a == b;
  }
}

// y = op(a, b) over n elements; a_repeats: a[0] for all of them. y may be a or b where that does not repeat.
// Pow only with a repeated exponent of 0.5, 1, 2, 3 or -1.
bool has_binary_f32(BinaryOp op);
bool is_simple_exponent(float exponent);
PARE_SIMD_DECLARE(void binary_f32(BinaryOp op, const float* a, bool a_repeats, const float* b, bool b_repeats,
                                  float* y, std::int64_t n))

void add_elementwise_binary_kernels(Registry& registry);
void add_elementwise_binary_reference(Registry& registry);

}  // namespace pare
