#include "engine/build/plan/program.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/error.h"
#include "engine/numeric/convert.h"

namespace pare {
namespace {

constexpr StepInfo kSteps[] = {
    {"Abs", 1, "fabsf(a)"},
    {"Add", 2, "(a + b)"},
    {"And", 2, "(a != 0.f && b != 0.f ? 1.f : 0.f)"},
    {"Ceil", 1, "ceilf(a)"},
    {"Clip", 1, "clip_(a, x, y)"},
    {"Cos", 1, "cosf(a)"},
    {"Dequantize", 1, "((a - y) * x)"},
    {"Div", 2, "(a / b)"},
    {"Elu", 1, "(a < 0.f ? x * expm1f(a) : a)"},
    {"Equal", 2, "(a == b ? 1.f : 0.f)"},
    {"Erf", 1, "erff(a)"},
    {"Exp", 1, "expf(a)"},
    {"FakeQuant", 1, "((clip_(rintf(a / x) + y, lo_, hi_) - y) * x)"},
    {"Floor", 1, "floorf(a)"},
    {"Gelu", 1, "gelu_(a, x)"},
    {"Greater", 2, "(a > b ? 1.f : 0.f)"},
    {"GreaterOrEqual", 2, "(a >= b ? 1.f : 0.f)"},
    {"HardSigmoid", 1, "clip_(x * a + y, 0.f, 1.f)"},
    {"HardSwish", 1, "(a * clip_(a * 0.16666667f + 0.5f, 0.f, 1.f))"},
    {"IsNaN", 1, "(a != a ? 1.f : 0.f)"},
    {"LeakyRelu", 1, "(a < 0.f ? x * a : a)"},
    {"Less", 2, "(a < b ? 1.f : 0.f)"},
    {"LessOrEqual", 2, "(a <= b ? 1.f : 0.f)"},
    {"Log", 1, "logf(a)"},
    {"Max", 2, "max_(a, b)"},
    {"Min", 2, "min_(a, b)"},
    {"Mul", 2, "(a * b)"},
    {"Neg", 1, "(-a)"},
    {"Not", 1, "(a == 0.f ? 1.f : 0.f)"},
    {"Or", 2, "(a != 0.f || b != 0.f ? 1.f : 0.f)"},
    {"Pow", 2, "powf(a, b)"},
    {"Quantize", 1, "clip_(rintf(a / x) + y, lo_, hi_)"},
    {"Reciprocal", 1, "(1.f / a)"},
    {"Relu", 1, "max_(a, 0.f)"},
    {"Round", 1, "rintf(a)"},
    {"Sigmoid", 1, "(1.f / (1.f + expf(-a)))"},
    {"Sign", 1, "(a > 0.f ? 1.f : a < 0.f ? -1.f : a)"},
    {"Silu", 1, "(a / (1.f + expf(-a)))"},
    {"Sin", 1, "sinf(a)"},
    {"Softplus", 1, "softplus_(a)"},
    {"Sqrt", 1, "sqrtf(a)"},
    {"Sub", 2, "(a - b)"},
    {"Swish", 1, "(a / (1.f + expf(-x * a)))"},
    {"Tanh", 1, "tanhf(a)"},
    {"Where", 3, "(a != 0.f ? b : c)"},
};

bool one_constant(const Graph& graph, ValueId id, double& out) {
  if (!graph.is_constant(id) || graph.value(id).constant.size() != 1) return false;
  const Tensor& t = graph.value(id).constant;
  Tensor f = Tensor::allocate(DType::kF32, t.dims());
  convert(t.view(), f.view());
  out = static_cast<double>(*f.as<float>());
  return true;
}

bool quantizer(const Graph& graph, const Node& node, DType type, ProgramStep& step, std::string& why_not) {
  if (!one_constant(graph, node.in[1], step.x)) why_not = "its scale is not one constant";
  step.y = 0;
  if (node.in.size() > 2 && node.in[2] != ValueId::kNone && !one_constant(graph, node.in[2], step.y))
    why_not = "its zero point is not one constant";
  if (type != DType::kI8 && type != DType::kU8 && !(type == DType::kE4M3FN && step.y == 0) &&
      !(step.op == "Dequantize" && type == DType::kI32))
    why_not = std::string("codes of type ") + name(type);
  step.z = static_cast<double>(static_cast<int>(type));
  return why_not.empty();
}

}  // namespace

double code_low(DType type) { return type == DType::kI8 ? -128 : type == DType::kE4M3FN ? -448 : 0; }
double code_high(DType type) { return type == DType::kI8 ? 127 : type == DType::kE4M3FN ? 448 : 255; }

const StepInfo* find_step(const std::string& op) {
  for (const StepInfo& info : kSteps)
    if (op == info.op) return &info;
  return nullptr;
}

bool step_of_node(const Graph& graph, const Node& node, ProgramStep& step, std::string& why_not) {
  step = {};
  step.op = node.op;
  if (node.is("QuantizeLinear")) {
    step.op = "Quantize";
    return quantizer(graph, node, graph.value(node.out[0]).dtype, step, why_not);
  }
  if (node.is("DequantizeLinear")) {
    step.op = "Dequantize";
    return quantizer(graph, node, graph.value(node.in[0]).dtype, step, why_not);
  }
  if (node.is("pare", "FakeQuant"))
    return quantizer(graph, node, static_cast<DType>(node.attr("code_dtype", std::int64_t{0})), step,
                     why_not);
  if (!node.domain.empty()) return false;
  if (node.op == "Identity" || node.op == "Cast") return false;  // the planner sees through them
  const StepInfo* info = find_step(node.op);
  if (info == nullptr) return false;
  for (const ValueId id : node.in)
    if (id != ValueId::kNone && is_integer(graph.value(id).dtype) && !graph.is_constant(id) &&
        bits(graph.value(id).dtype) > 32) {
      why_not = "arithmetic on 64 bit integers";
      return false;
    }
  if (node.op == "Clip") {
    step.x = -std::numeric_limits<double>::infinity();
    step.y = std::numeric_limits<double>::infinity();
    for (std::size_t i = 1; i < node.in.size(); ++i)
      if (node.in[i] != ValueId::kNone && !one_constant(graph, node.in[i], i == 1 ? step.x : step.y)) {
        why_not = "its limits are not constants";
        return false;
      }
  } else if (node.op == "HardSigmoid") {
    step.x = static_cast<double>(node.attr("alpha", 0.2f));
    step.y = static_cast<double>(node.attr("beta", 0.5f));
  } else if (node.op == "LeakyRelu" || node.op == "Elu") {
    step.x = static_cast<double>(node.attr("alpha", node.op == "Elu" ? 1.0f : 0.01f));
  } else if (node.op == "Swish") {
    step.x = static_cast<double>(node.attr("alpha", 1.0f));
  } else if (node.op == "Gelu") {
    step.x = node.attr("approximate", "none") == "tanh" ? 1 : 0;
  }
  return true;
}

float evaluate_step(const ProgramStep& step, const float* args) {
  const float a = args[0], b = args[1], c = args[2];
  const auto x = static_cast<float>(step.x), y = static_cast<float>(step.y);
  const std::string& op = step.op;
  const auto clip = [](float v, float low, float high) { return v < low ? low : v > high ? high : v; };
  const auto truth = [](bool t) { return t ? 1.0f : 0.0f; };
  const auto type = static_cast<DType>(static_cast<int>(step.z));
  const auto low = static_cast<float>(code_low(type)), high = static_cast<float>(code_high(type));
  if (op == "const") return x;
  if (op == "Abs") return std::fabs(a);
  if (op == "Add") return a + b;
  if (op == "And") return truth(a != 0 && b != 0);
  if (op == "Ceil") return std::ceil(a);
  if (op == "Clip") return clip(a, x, y);
  if (op == "Cos") return std::cos(a);
  if (op == "Dequantize") return (a - y) * x;
  if (op == "Div") return a / b;
  if (op == "Elu") return a < 0 ? x * std::expm1(a) : a;
  if (op == "Equal") return truth(a == b);
  if (op == "Erf") return std::erf(a);
  if (op == "Exp") return std::exp(a);
  if ((op == "FakeQuant" || op == "Quantize") && type == DType::kE4M3FN) {
    const float v = a / x;
    float code = 0;
    round_through(type, &v, &code, 1);
    return op == "Quantize" ? code : code * x;
  }
  if (op == "FakeQuant") return (clip(std::nearbyint(a / x) + y, low, high) - y) * x;
  if (op == "Floor") return std::floor(a);
  if (op == "Gelu")
    return x != 0 ? 0.5f * a * (1 + std::tanh(0.7978845608f * (a + 0.044715f * a * a * a)))
                  : 0.5f * a * (1 + std::erf(a * 0.70710678f));
  if (op == "Greater") return truth(a > b);
  if (op == "GreaterOrEqual") return truth(a >= b);
  if (op == "HardSigmoid") return clip(x * a + y, 0, 1);
  if (op == "HardSwish") return a * clip(a * 0.16666667f + 0.5f, 0, 1);
  if (op == "IsNaN") return truth(std::isnan(a));
  if (op == "LeakyRelu") return a < 0 ? x * a : a;
  if (op == "Less") return truth(a < b);
  if (op == "LessOrEqual") return truth(a <= b);
  if (op == "Log") return std::log(a);
  if (op == "Max") return std::isnan(a) || std::isnan(b) ? a + b : std::max(a, b);
  if (op == "Min") return std::isnan(a) || std::isnan(b) ? a + b : std::min(a, b);
  if (op == "Mul") return a * b;
  if (op == "Neg") return -a;
  if (op == "Not") return truth(a == 0);
  if (op == "Or") return truth(a != 0 || b != 0);
  if (op == "Pow") return std::pow(a, b);
  if (op == "Quantize") return clip(std::nearbyint(a / x) + y, low, high);
  if (op == "Reciprocal") return 1 / a;
  if (op == "Relu") return std::isnan(a) ? a : std::max(a, 0.0f);
  if (op == "Round") return std::nearbyint(a);
  if (op == "Sigmoid") return 1 / (1 + std::exp(-a));
  if (op == "Sign") return a > 0 ? 1.0f : a < 0 ? -1.0f : a;
  if (op == "Silu") return a / (1 + std::exp(-a));
  if (op == "Sin") return std::sin(a);
  if (op == "Softplus") return std::max(a, 0.0f) + std::log1p(std::exp(-std::fabs(a)));
  if (op == "Sqrt") return std::sqrt(a);
  if (op == "Sub") return a - b;
  if (op == "Swish") return a / (1 + std::exp(-x * a));
  if (op == "Tanh") return std::tanh(a);
  if (op == "Where") return a != 0 ? b : c;
  fail(ErrorCode::kInternal, "a program has no step '{}'", op);
}

int append_activation(Program& program, const Activation& act, int at) {
  using Kind = Activation::Kind;
  ProgramStep step;
  step.args = {at};
  switch (act.kind) {
    case Kind::kClip:
      if (std::isinf(act.lo) && std::isinf(act.hi)) return at;
      step.op = act.lo == 0 && std::isinf(act.hi) ? "Relu" : "Clip";
      step.x = static_cast<double>(act.lo);
      step.y = static_cast<double>(act.hi);
      break;
    case Kind::kHardSwish:
      step.op = "HardSwish";
      break;
    case Kind::kHardSigmoid:
      step.op = "HardSigmoid";
      step.x = static_cast<double>(act.alpha);
      step.y = static_cast<double>(act.beta);
      break;
    case Kind::kSigmoid:
      step.op = "Sigmoid";
      break;
    case Kind::kSilu:
      step.op = "Silu";
      break;
    case Kind::kGelu:
      step.op = "Gelu";
      break;
    case Kind::kTanh:
      step.op = "Tanh";
      break;
  }
  program.steps.push_back(step);
  return static_cast<int>(program.steps.size()) - 1;
}

}  // namespace pare
