// The activation that a lowered convolution or matrix product applies to its result while it is in cache.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace pare {

struct Node;

struct Activation {
  enum class Kind : std::uint8_t { kClip, kHardSwish, kHardSigmoid, kSigmoid, kSilu, kGelu, kTanh };

  // kClip is min(hi, max(lo, x)) and keeps NaN; no activation at all and Relu are clips too.
  Kind kind = Kind::kClip;
  float lo = -std::numeric_limits<float>::infinity(), hi = std::numeric_limits<float>::infinity();
  float alpha = 0, beta = 0;  // kHardSigmoid: max(0, min(1, alpha * x + beta))

  double operator()(double x) const;  // for reference kernels
};

// From the attributes of a pare.Conv or pare.MatMul: `activation` is "", Relu, Clip (clip_min, clip_max),
// HardSwish, HardSigmoid (activation_alpha, activation_beta: a product has an alpha of its own), Sigmoid,
// Silu, Gelu (exact) or Tanh. Another name: false.
bool read_activation(const Node& node, Activation& activation);

}  // namespace pare
