#include "engine/ops/elementwise/elementwise_unary.h"

#include <cmath>
#include <iterator>
#include <string_view>

#include "engine/ir/graph.h"

namespace pare {
namespace {

constexpr UnaryName kRows[] = {
    {"Abs", UnaryOp::kAbs},
    {"Acos", UnaryOp::kAcos},
    {"Acosh", UnaryOp::kAcosh},
    {"Asin", UnaryOp::kAsin},
    {"Asinh", UnaryOp::kAsinh},
    {"Atan", UnaryOp::kAtan},
    {"Atanh", UnaryOp::kAtanh},
    {"Ceil", UnaryOp::kCeil},
    {"Celu", UnaryOp::kCelu},
    {"Cos", UnaryOp::kCos},
    {"Cosh", UnaryOp::kCosh},
    {"Elu", UnaryOp::kElu},
    {"Erf", UnaryOp::kErf},
    {"Exp", UnaryOp::kExp},
    {"Floor", UnaryOp::kFloor},
    {"Gelu", UnaryOp::kGelu},
    {"HardSigmoid", UnaryOp::kHardSigmoid},
    {"HardSwish", UnaryOp::kHardSwish},
    {"LeakyRelu", UnaryOp::kLeakyRelu},
    {"Log", UnaryOp::kLog},
    {"Mish", UnaryOp::kMish},
    {"Neg", UnaryOp::kNeg},
    {"Reciprocal", UnaryOp::kReciprocal},
    {"Relu", UnaryOp::kRelu},
    {"Round", UnaryOp::kRound},
    {"Selu", UnaryOp::kSelu},
    {"Shrink", UnaryOp::kShrink},
    {"Sigmoid", UnaryOp::kSigmoid},
    {"Sign", UnaryOp::kSign},
    {"Sin", UnaryOp::kSin},
    {"Sinh", UnaryOp::kSinh},
    {"Softplus", UnaryOp::kSoftplus},
    {"Softsign", UnaryOp::kSoftsign},
    {"Sqrt", UnaryOp::kSqrt},
    {"Swish", UnaryOp::kSwish},
    {"Tan", UnaryOp::kTan},
    {"Tanh", UnaryOp::kTanh},
    {"ThresholdedRelu", UnaryOp::kThresholdedRelu},
};

double softplus(double x) { return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }
double sigmoid(double x) {
  const double e = std::exp(-std::fabs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}
// NaN stays: it is neither below 0 nor above 1.
double hard_sigmoid(double x) { return x < 0 ? 0 : x > 1 ? 1 : x; }

}  // namespace

const UnaryName* unary_names(int& count) {
  count = static_cast<int>(std::size(kRows));
  return kRows;
}

bool unary_params(const Node& node, UnaryParams& out) {
  if (!node.domain.empty()) return false;
  const UnaryName* row = nullptr;
  for (const UnaryName& candidate : kRows)
    if (node.op == candidate.name) row = &candidate;
  if (row == nullptr) return false;
  out = {row->op, 0, 0};
  switch (row->op) {
    case UnaryOp::kCelu:
    case UnaryOp::kElu:
    case UnaryOp::kSwish:
    case UnaryOp::kThresholdedRelu:
      out.alpha = node.attr("alpha", 1.0F);
      break;
    case UnaryOp::kLeakyRelu:
      out.alpha = node.attr("alpha", 0.01F);
      break;
    case UnaryOp::kHardSigmoid:
      out.alpha = node.attr("alpha", 0.2F);
      out.beta = node.attr("beta", 0.5F);
      break;
    case UnaryOp::kSelu:
      out.alpha = node.attr("alpha", 1.67326319217681884765625F);
      out.beta = node.attr("gamma", 1.05070102214813232421875F);
      break;
    case UnaryOp::kShrink:
      out.alpha = node.attr("lambd", 0.5F);
      out.beta = node.attr("bias", 0.0F);
      break;
    case UnaryOp::kGelu:
      if (node.attr("approximate", "none") == "tanh") out.op = UnaryOp::kGeluTanh;
      break;
    default:
      break;
  }
  return true;
}

double unary_value(const UnaryParams& params, double x) {
  const double alpha = params.alpha, beta = params.beta;
  constexpr double kSqrtHalf = 0.70710678118654752440, kSqrt2OverPi = 0.79788456080286535588;
  switch (params.op) {
    case UnaryOp::kAbs:
      return std::fabs(x);
    case UnaryOp::kAcos:
      return std::acos(x);
    case UnaryOp::kAcosh:
      return std::acosh(x);
    case UnaryOp::kAsin:
      return std::asin(x);
    case UnaryOp::kAsinh:
      return std::asinh(x);
    case UnaryOp::kAtan:
      return std::atan(x);
    case UnaryOp::kAtanh:
      return std::atanh(x);
    case UnaryOp::kCeil:
      return std::ceil(x);
    case UnaryOp::kCelu:
      return x < 0 ? alpha * std::expm1(x / alpha) : x;
    case UnaryOp::kCos:
      return std::cos(x);
    case UnaryOp::kCosh:
      return std::cosh(x);
    case UnaryOp::kElu:
      return x < 0 ? alpha * std::expm1(x) : x;
    case UnaryOp::kErf:
      return std::erf(x);
    case UnaryOp::kExp:
      return std::exp(x);
    case UnaryOp::kFloor:
      return std::floor(x);
    case UnaryOp::kGelu:
      return 0.5 * x * (1 + std::erf(x * kSqrtHalf));
    case UnaryOp::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(kSqrt2OverPi * (x + 0.044715 * x * x * x)));
    case UnaryOp::kHardSigmoid:
      return hard_sigmoid(alpha * x + beta);
    case UnaryOp::kHardSwish:
      return x * hard_sigmoid(x / 6 + 0.5);
    case UnaryOp::kLeakyRelu:
      return x < 0 ? alpha * x : x;
    case UnaryOp::kLog:
      return std::log(x);
    case UnaryOp::kMish:
      return x * std::tanh(softplus(x));
    case UnaryOp::kNeg:
      return -x;
    case UnaryOp::kReciprocal:
      return 1 / x;
    case UnaryOp::kRelu:
      return x < 0 ? 0 : x;
    case UnaryOp::kRound:
      return std::nearbyint(x);
    case UnaryOp::kSelu:
      return beta * (x <= 0 ? alpha * std::expm1(x) : x);
    case UnaryOp::kShrink:
      return x < -alpha ? x + beta : x > alpha ? x - beta : x != x ? x : 0;
    case UnaryOp::kSigmoid:
      return sigmoid(x);
    case UnaryOp::kSign:
      return x > 0 ? 1 : x < 0 ? -1 : x;
    case UnaryOp::kSin:
      return std::sin(x);
    case UnaryOp::kSinh:
      return std::sinh(x);
    case UnaryOp::kSoftplus:
      return softplus(x);
    case UnaryOp::kSoftsign:
      return x / (1 + std::fabs(x));
    case UnaryOp::kSqrt:
      return std::sqrt(x);
    case UnaryOp::kSwish:
      return x * sigmoid(alpha * x);
    case UnaryOp::kTan:
      return std::tan(x);
    case UnaryOp::kTanh:
      return std::tanh(x);
    case UnaryOp::kThresholdedRelu:
      return x > alpha ? x : x != x ? x : 0;
  }
  return x;
}

bool has_unary_f32(UnaryOp op) {
  switch (op) {
    case UnaryOp::kAbs:
    case UnaryOp::kErf:
    case UnaryOp::kExp:
    case UnaryOp::kGelu:
    case UnaryOp::kGeluTanh:
    case UnaryOp::kHardSigmoid:
    case UnaryOp::kHardSwish:
    case UnaryOp::kLeakyRelu:
    case UnaryOp::kNeg:
    case UnaryOp::kReciprocal:
    case UnaryOp::kRelu:
    case UnaryOp::kSigmoid:
    case UnaryOp::kSoftsign:
    case UnaryOp::kSqrt:
    case UnaryOp::kSwish:
    case UnaryOp::kTanh:
      return true;
    default:
      return false;
  }
}

}  // namespace pare
