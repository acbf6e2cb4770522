// Activations on F32 vectors. Included by *_simd.cpp files only.
#pragma once

#include "engine/ops/activation.h"
#include "engine/ops/vector_math.h"

namespace pare::PARE_SIMD {

// Everything but kClip, on n floats in place.
inline void activate_floats(const Activation& act, float* x, std::int64_t n) {
  using Kind = Activation::Kind;
  switch (act.kind) {
    case Kind::kClip:
      return;
    case Kind::kHardSwish:
      return transform(x, x, n, [](F32 v) { return hard_swish(v); });
    case Kind::kHardSigmoid: {
      const F32 alpha = F32::set(act.alpha), beta = F32::set(act.beta);
      return transform(x, x, n, [=](F32 v) { return hard_sigmoid(v, alpha, beta); });
    }
    case Kind::kSigmoid:
      return transform(x, x, n, [](F32 v) { return sigmoid(v); });
    case Kind::kSilu:
      return transform(x, x, n, [](F32 v) { return silu(v); });
    case Kind::kGelu:
      return transform(x, x, n, [](F32 v) { return gelu(v); });
    case Kind::kTanh:
      return transform(x, x, n, [](F32 v) { return tanh(v); });
  }
}

}  // namespace pare::PARE_SIMD
