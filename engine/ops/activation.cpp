#include "engine/ops/activation.h"

#include <cmath>

#include "engine/ir/graph.h"

namespace pare {

double Activation::operator()(double x) const {
  switch (kind) {
    case Kind::kClip: {
      const double low = static_cast<double>(lo) > x ? static_cast<double>(lo) : x;
      return static_cast<double>(hi) < low ? static_cast<double>(hi) : low;
    }
    case Kind::kHardSwish:
      return x * std::fmax(0.0, std::fmin(1.0, x / 6 + 0.5));
    case Kind::kHardSigmoid: {
      const double y = static_cast<double>(alpha) * x + static_cast<double>(beta);
      return y < 0 ? 0 : y > 1 ? 1 : y;
    }
    case Kind::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Kind::kSilu:
      return x / (1 + std::exp(-x));
    case Kind::kGelu:
      return 0.5 * x * (1 + std::erf(x * M_SQRT1_2));
    case Kind::kTanh:
      return std::tanh(x);
  }
  return x;
}

bool read_activation(const Node& node, Activation& activation) {
  const std::string name = node.attr("activation", "");
  activation = Activation{};
  if (name.empty()) return true;
  using Kind = Activation::Kind;
  if (name == "Relu") {
    activation.lo = 0;
  } else if (name == "Clip") {
    activation.lo = node.attr("clip_min", activation.lo);
    activation.hi = node.attr("clip_max", activation.hi);
  } else if (name == "HardSwish") {
    activation.kind = Kind::kHardSwish;
  } else if (name == "HardSigmoid") {
    activation.kind = Kind::kHardSigmoid;
    activation.alpha = node.attr("activation_alpha", 0.2f);
    activation.beta = node.attr("activation_beta", 0.5f);
  } else if (name == "Sigmoid") {
    activation.kind = Kind::kSigmoid;
  } else if (name == "Silu") {
    activation.kind = Kind::kSilu;
  } else if (name == "Gelu") {
    activation.kind = Kind::kGelu;
  } else if (name == "Tanh") {
    activation.kind = Kind::kTanh;
  } else {
    return false;
  }
  return true;
}

}  // namespace pare
