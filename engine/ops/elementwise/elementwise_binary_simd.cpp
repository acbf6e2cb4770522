#include "engine/ops/elementwise/elementwise_binary.h"
#include "engine/ops/vector_math.h"

namespace pare::PARE_SIMD {
namespace {

template <typename Op>
PARE_INLINE void rows(const float* a, bool a_repeats, const float* b, bool b_repeats, float* y,
                      std::int64_t n, Op op) {
  if (a_repeats) {
    const F32 number = F32::set(*a);
    if (b_repeats) {
      const F32 all = op(number, F32::set(*b));
      return transform(y, y, n, [=](F32) { return all; });
    }
    return transform(b, y, n, [=](F32 v) { return op(number, v); });
  }
  if (b_repeats) {
    const F32 number = F32::set(*b);
    return transform(a, y, n, [=](F32 v) { return op(v, number); });
  }
  transform2(a, b, y, n, op);
}

// NaN in either operand wins. The instruction alone gives its second operand.
PARE_INLINE F32 least(F32 a, F32 b) { return select(less(b, a), b, select(is_nan(b), b, a)); }
PARE_INLINE F32 greatest(F32 a, F32 b) { return select(less(a, b), b, select(is_nan(b), b, a)); }

void power(const float* x, float exponent, float* y, std::int64_t n) {
  const F32 one = F32::set(1.0f);
  if (exponent == 2.0f) return transform(x, y, n, [](F32 v) { return v * v; });
  if (exponent == 3.0f) return transform(x, y, n, [](F32 v) { return v * v * v; });
  if (exponent == -1.0f) return transform(x, y, n, [=](F32 v) { return one / v; });
  if (exponent == 1.0f) return transform(x, y, n, [](F32 v) { return v; });
  // pow(-0, 0.5) is +0 and pow(-inf, 0.5) is +inf, where sqrt says -0 and NaN.
  const F32 inf = F32::set(__builtin_inff());
  transform(x, y, n, [=](F32 v) {
    const F32 root = sqrt(v) + F32::zero();
    return select(less(v, F32::set(-3.4028234664e38f)), inf, root);
  });
}

}  // namespace

void binary_f32(BinaryOp op, const float* a, bool a_repeats, const float* b, bool b_repeats, float* y,
                std::int64_t n) {
  switch (op) {
    case BinaryOp::kAdd:
      return rows(a, a_repeats, b, b_repeats, y, n, [](F32 u, F32 v) { return u + v; });
    case BinaryOp::kSub:
      return rows(a, a_repeats, b, b_repeats, y, n, [](F32 u, F32 v) { return u - v; });
    case BinaryOp::kMul:
      return rows(a, a_repeats, b, b_repeats, y, n, [](F32 u, F32 v) { return u * v; });
    case BinaryOp::kDiv:
      return rows(a, a_repeats, b, b_repeats, y, n, [](F32 u, F32 v) { return u / v; });
    case BinaryOp::kMin:
      return rows(a, a_repeats, b, b_repeats, y, n, [](F32 u, F32 v) { return least(u, v); });
    case BinaryOp::kMax:
      return rows(a, a_repeats, b, b_repeats, y, n, [](F32 u, F32 v) { return greatest(u, v); });
    case BinaryOp::kPRelu:
      return rows(a, a_repeats, b, b_repeats, y, n,
                  [](F32 u, F32 v) { return select(less(u, F32::zero()), v * u, u); });
    case BinaryOp::kPow:
      return power(a, *b, y, n);
    default:
      return;
  }
}

}  // namespace pare::PARE_SIMD
