// Activations on F32 vectors. Included by *_simd.cpp files only.
#pragma once

#include "engine/ops/activation.h"
#include "engine/ops/vector_math.h"

namespace pare::PARE_SIMD {

// Calls run(op) with the activation as a function on F32; not for kClip.
template <typename Run>
PARE_INLINE void with_activation(const Activation& act, Run run) {
  using Kind = Activation::Kind;
  switch (act.kind) {
    case Kind::kClip:
      return;
    case Kind::kHardSwish:
      return run([](F32 v) { return hard_swish(v); });
    case Kind::kHardSigmoid: {
      const F32 alpha = F32::set(act.alpha), beta = F32::set(act.beta);
      return run([=](F32 v) { return hard_sigmoid(v, alpha, beta); });
    }
    case Kind::kSigmoid:
      return run([](F32 v) { return sigmoid(v); });
    case Kind::kSilu:
      return run([](F32 v) { return silu(v); });
    case Kind::kGelu:
      return run([](F32 v) { return gelu(v); });
    case Kind::kTanh:
      return run([](F32 v) { return tanh(v); });
  }
}

// Everything but kClip, on n floats in place.
__attribute__((noinline)) inline void activate_floats(const Activation& act, float* x, std::int64_t n) {
  with_activation(act, [=](auto op) { transform(x, x, n, op); });
}

// The same on rows of `width` floats, `stride` apart.
__attribute__((noinline)) inline void activate_rows(const Activation& act, float* x, std::int64_t stride,
                                                    std::int64_t rows, std::int64_t width) {
  // Rows of a few numbers with nothing between them are one row: a vector a row would be mostly empty.
  if (stride == width) return activate_floats(act, x, rows * width);
  with_activation(act, [=](auto op) {
    for (std::int64_t row = 0; row < rows; ++row) transform(x + row * stride, x + row * stride, width, op);
  });
}

}  // namespace pare::PARE_SIMD
