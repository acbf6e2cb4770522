// Normal numbers, the same in every run.
#pragma once

#include <utility>

#include "datasets/random.h"
#include "engine/base/tensor.h"

namespace pare {

inline Tensor normal(Dims dims, std::uint64_t seed) {
  SplitMix random(seed);
  Tensor t = Tensor::allocate(DType::kF32, std::move(dims));
  for (std::int64_t i = 0; i < t.size(); ++i) t.mut<float>()[i] = random.normal();
  return t;
}

}  // namespace pare
