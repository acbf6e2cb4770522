#include "engine/ops/elementwise/elementwise_unary.h"
#include "engine/ops/vector_math.h"

namespace pare::PARE_SIMD {

void unary_f32(const UnaryParams& params, const float* x, float* y, std::int64_t n) {
  const F32 alpha = F32::set(params.alpha), beta = F32::set(params.beta), one = F32::set(1.0f);
  switch (params.op) {
    case UnaryOp::kAbs:
      return transform(x, y, n, [](F32 v) { return abs(v); });
    case UnaryOp::kErf:
      return transform(x, y, n, [](F32 v) { return erf(v); });
    case UnaryOp::kExp:
      return transform(x, y, n, [](F32 v) { return exp(v); });
    case UnaryOp::kGelu:
      return transform(x, y, n, [](F32 v) { return gelu(v); });
    case UnaryOp::kGeluTanh:
      return transform(x, y, n, [](F32 v) { return gelu_tanh(v); });
    case UnaryOp::kHardSigmoid:
      return transform(x, y, n, [=](F32 v) { return hard_sigmoid(v, alpha, beta); });
    case UnaryOp::kHardSwish:
      return transform(x, y, n, [](F32 v) { return hard_swish(v); });
    case UnaryOp::kLeakyRelu:
      return transform(x, y, n, [=](F32 v) { return select(less(v, F32::zero()), alpha * v, v); });
    case UnaryOp::kNeg:
      return transform(x, y, n, [](F32 v) { return F32::set(-1.0f) * v; });
    case UnaryOp::kReciprocal:
      return transform(x, y, n, [=](F32 v) { return one / v; });
    case UnaryOp::kRelu:
      return transform(x, y, n, [](F32 v) { return relu(v); });
    case UnaryOp::kSigmoid:
      return transform(x, y, n, [](F32 v) { return sigmoid(v); });
    case UnaryOp::kSoftsign:
      return transform(x, y, n, [=](F32 v) { return v / (one + abs(v)); });
    case UnaryOp::kSqrt:
      return transform(x, y, n, [](F32 v) { return sqrt(v); });
    case UnaryOp::kSwish:
      return transform(x, y, n, [=](F32 v) { return v * sigmoid(alpha * v); });
    case UnaryOp::kTanh:
      return transform(x, y, n, [](F32 v) { return tanh(v); });
    default:
      return;
  }
}

}  // namespace pare::PARE_SIMD
