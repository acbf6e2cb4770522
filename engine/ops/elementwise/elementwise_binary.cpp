#include "engine/ops/elementwise/elementwise_binary.h"

#include <cmath>
#include <iterator>
#include <type_traits>

#include "engine/ir/graph.h"

namespace pare {
namespace {

constexpr BinaryName kRows[] = {
    {"Add", BinaryOp::kAdd},
    {"Sub", BinaryOp::kSub},
    {"Mul", BinaryOp::kMul},
    {"Div", BinaryOp::kDiv},
    {"Pow", BinaryOp::kPow},
    {"Mod", BinaryOp::kMod},
    {"Min", BinaryOp::kMin},
    {"Max", BinaryOp::kMax},
    {"Sum", BinaryOp::kAdd},
    {"Mean", BinaryOp::kAdd},
    {"PRelu", BinaryOp::kPRelu},
    {"Less", BinaryOp::kLess},
    {"LessOrEqual", BinaryOp::kLessOrEqual},
    {"Greater", BinaryOp::kGreater},
    {"GreaterOrEqual", BinaryOp::kGreaterOrEqual},
    {"Equal", BinaryOp::kEqual},
    {"And", BinaryOp::kAnd},
    {"Or", BinaryOp::kOr},
    {"Xor", BinaryOp::kXor},
    {"BitwiseAnd", BinaryOp::kBitwiseAnd},
    {"BitwiseOr", BinaryOp::kBitwiseOr},
    {"BitwiseXor", BinaryOp::kBitwiseXor},
    {"BitShift", BinaryOp::kShiftLeft},
};

// Sign of the divisor, as Python has it.
double floor_mod(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

template <typename T>
T integer_power(T base, T exponent) {
  if constexpr (std::is_signed_v<T>)
    if (exponent < 0) return base == 1 ? T{1} : base == T{-1} ? (exponent % 2 == 0 ? T{1} : T{-1}) : T{0};
  std::uint64_t result = 1;
  auto factor = static_cast<std::uint64_t>(base);
  for (auto left = static_cast<std::uint64_t>(exponent); left != 0; left >>= 1) {
    if ((left & 1) != 0) result *= factor;
    factor *= factor;
  }
  return static_cast<T>(result);
}

template <typename T>
T integer_quotient(T a, T b) {
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>)
    if (b == T{-1})
      return static_cast<T>(std::uint64_t{0} - static_cast<std::uint64_t>(a));  // least / -1 wraps
  return static_cast<T>(a / b);
}

template <typename T>
T integer_rest(T a, T b, bool sign_of_divisor) {
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    if (b == T{-1}) return 0;
    const T rest = static_cast<T>(a % b);
    return sign_of_divisor && rest != 0 && (rest < 0) != (b < 0) ? static_cast<T>(rest + b) : rest;
  } else {
    return static_cast<T>(a % b);
  }
}

}  // namespace

const BinaryName* binary_names(int& count) {
  count = static_cast<int>(std::size(kRows));
  return kRows;
}

bool binary_op(const Node& node, BinaryOp& out) {
  if (!node.domain.empty()) return false;
  for (const BinaryName& row : kRows) {
    if (node.op != row.name) continue;
    out = row.op;
    if (out == BinaryOp::kMod && node.attr("fmod", std::int64_t{0}) != 0) out = BinaryOp::kFmod;
    if (out == BinaryOp::kShiftLeft && node.attr("direction", "LEFT") == "RIGHT") out = BinaryOp::kShiftRight;
    return true;
  }
  return false;
}

bool is_comparison(BinaryOp op) { return op >= BinaryOp::kLess && op <= BinaryOp::kEqual; }
bool is_logical(BinaryOp op) { return op >= BinaryOp::kAnd && op <= BinaryOp::kXor; }
bool is_bitwise(BinaryOp op) { return op >= BinaryOp::kBitwiseAnd; }

double binary_value(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return a + b;
    case BinaryOp::kSub:
      return a - b;
    case BinaryOp::kMul:
      return a * b;
    case BinaryOp::kDiv:
      return a / b;
    case BinaryOp::kPow:
      return std::pow(a, b);
    case BinaryOp::kMod:
      return floor_mod(a, b);
    case BinaryOp::kFmod:
      return std::fmod(a, b);
    case BinaryOp::kMin:
      return a != a ? a : b < a || b != b ? b : a;
    case BinaryOp::kMax:
      return a != a ? a : b > a || b != b ? b : a;
    case BinaryOp::kPRelu:
      return a < 0 ? b * a : a;
    default:
      return compare_values(op, a, b) ? 1 : 0;
  }
}

bool compare_values(BinaryOp op, double a, double b) { return compare_integers(op, a, b); }

template <typename T>
T integer_binary_value(BinaryOp op, T a, T b) {
  const auto ua = static_cast<std::uint64_t>(a), ub = static_cast<std::uint64_t>(b);
  constexpr auto kWidth = static_cast<std::uint64_t>(sizeof(T) * 8);
  using Unsigned = std::make_unsigned_t<T>;
  switch (op) {
    case BinaryOp::kAdd:
      return static_cast<T>(ua + ub);
    case BinaryOp::kSub:
      return static_cast<T>(ua - ub);
    case BinaryOp::kMul:
      return static_cast<T>(ua * ub);
    case BinaryOp::kDiv:
      return integer_quotient(a, b);
    case BinaryOp::kPow:
      return integer_power(a, b);
    case BinaryOp::kMod:
      return integer_rest(a, b, true);
    case BinaryOp::kFmod:
      return integer_rest(a, b, false);
    case BinaryOp::kMin:
      return a < b ? a : b;
    case BinaryOp::kMax:
      return a > b ? a : b;
    case BinaryOp::kPRelu:
      return a < T{0} ? static_cast<T>(ua * ub) : a;
    case BinaryOp::kBitwiseAnd:
      return static_cast<T>(ua & ub);
    case BinaryOp::kBitwiseOr:
      return static_cast<T>(ua | ub);
    case BinaryOp::kBitwiseXor:
      return static_cast<T>(ua ^ ub);
    case BinaryOp::kShiftLeft:
      return ub >= kWidth ? T{0} : static_cast<T>(ua << ub);
    case BinaryOp::kShiftRight:
      return ub >= kWidth ? T{0} : static_cast<T>(static_cast<Unsigned>(a) >> ub);
    case BinaryOp::kAnd:
      return a != 0 && b != 0 ? T{1} : T{0};
    case BinaryOp::kOr:
      return a != 0 || b != 0 ? T{1} : T{0};
    case BinaryOp::kXor:
      return (a != 0) != (b != 0) ? T{1} : T{0};
    default:
      return compare_integers(op, a, b) ? T{1} : T{0};
  }
}

template std::int8_t integer_binary_value(BinaryOp, std::int8_t, std::int8_t);
template std::int16_t integer_binary_value(BinaryOp, std::int16_t, std::int16_t);
template std::int32_t integer_binary_value(BinaryOp, std::int32_t, std::int32_t);
template std::int64_t integer_binary_value(BinaryOp, std::int64_t, std::int64_t);
template std::uint8_t integer_binary_value(BinaryOp, std::uint8_t, std::uint8_t);
template std::uint16_t integer_binary_value(BinaryOp, std::uint16_t, std::uint16_t);
template std::uint32_t integer_binary_value(BinaryOp, std::uint32_t, std::uint32_t);
template std::uint64_t integer_binary_value(BinaryOp, std::uint64_t, std::uint64_t);

bool has_binary_f32(BinaryOp op) {
  return op <= BinaryOp::kPRelu && op != BinaryOp::kMod && op != BinaryOp::kFmod;
}

bool is_simple_exponent(float exponent) {
  return exponent == 0.5F || exponent == 1.0F || exponent == 2.0F || exponent == 3.0F || exponent == -1.0F;
}

}  // namespace pare
