// The functions of vector_math.h over arrays, for vector_math_test.cpp.
#include "tests/unit/ops/vector_math_simd.h"

#include "engine/ops/vector_math.h"

namespace pare::PARE_SIMD {

void vector_math(VectorFunction function, const float* x, float* y, std::int64_t n) {
  switch (function) {
    case VectorFunction::kExp:
      return transform(x, y, n, [](F32 v) { return exp(v); });
    case VectorFunction::kTanh:
      return transform(x, y, n, [](F32 v) { return tanh(v); });
    case VectorFunction::kErf:
      return transform(x, y, n, [](F32 v) { return erf(v); });
    case VectorFunction::kSigmoid:
      return transform(x, y, n, [](F32 v) { return sigmoid(v); });
    case VectorFunction::kGelu:
      return transform(x, y, n, [](F32 v) { return gelu(v); });
    case VectorFunction::kRelu:
      return transform(x, y, n, [](F32 v) { return relu(v); });
    case VectorFunction::kHardSwish:
      return transform(x, y, n, [](F32 v) { return hard_swish(v); });
    case VectorFunction::kClip:
      return transform(x, y, n, [](F32 v) { return clip(v, F32::set(-1.0f), F32::set(6.0f)); });
  }
}

}  // namespace pare::PARE_SIMD
