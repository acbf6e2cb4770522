// Elementwise operators: every kernel against its reference, and golden values of what the specification
// says.
#include <limits>

#include "tests/unit/ops/op_case.h"

namespace pare::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Ordinary values and all the ugly ones.
Tensor ugly(Dims dims) {
  Tensor t = floats(std::move(dims), 3, -6, 6);
  const float special[] = {0.0F,   -0.0F,   kInf,    -kInf,    kNan,   1.0F,  -1.0F,  0.5F,   -0.5F,
                           1e-40F, -1e-40F, 3.4e38F, -3.4e38F, 1e-20F, 88.0F, -88.0F, 100.0F, -104.0F};
  for (std::int64_t i = 0; i < t.size() && i < static_cast<std::int64_t>(std::size(special)); ++i)
    t.mut<float>()[i] = special[i];
  return t;
}

TEST(Elementwise, UnaryKernelsAgreeWithTheFormula) {
  // vector_math.h: at most 2.5 units in the last place, and one or two more roundings around it: 5 units of
  // 2^-23, relative. Gelu's sum cancels for negative x: 2^-23 of |x| <= 100 absolute, 1.2e-5; Mish, Celu and
  // the like have no vector code and round once.
  const double ulp = 0x1p-23;
  for (const char* op : {"Abs",         "Acos",
                         "Acosh",       "Asin",
                         "Asinh",       "Atan",
                         "Atanh",       "Ceil",
                         "Celu",        "Cos",
                         "Cosh",        "Elu",
                         "Erf",         "Exp",
                         "Floor",       "Gelu",
                         "HardSigmoid", "HardSwish",
                         "LeakyRelu",   "Log",
                         "Mish",        "Neg",
                         "Reciprocal",  "Relu",
                         "Round",       "Selu",
                         "Shrink",      "Sigmoid",
                         "Sign",        "Sin",
                         "Sinh",        "Softplus",
                         "Softsign",    "Sqrt",
                         "Swish",       "Tan",
                         "Tanh",        "ThresholdedRelu"}) {
    const bool gelu = std::string(op) == "Gelu";
    const bool hard = std::string(op).substr(0, 4) == "Hard";  // alpha x + beta near its zero: one ulp of 1
    const double absolute = gelu ? 2e-5 : hard ? 2e-6 : 1e-37;
    for (const Dims& dims : {Dims{40}, Dims{3, 1, 7}, Dims{}, Dims{0, 4}}) {
      check_case({op, {ugly(dims)}, {}, 1, 5 * ulp, absolute});
      // One unit of float16 is 2^-10 relative, of bfloat16 2^-7; results may round to either neighbour.
      check_case({op, {to_type(ugly(dims), DType::kF16)}, {}, 1, 0x1p-10, gelu || hard ? 1e-3 : 1e-7});
      check_case({op, {to_type(ugly(dims), DType::kBF16)}, {}, 1, 0x1p-7, gelu || hard ? 1e-2 : 1e-37});
      check_case({op, {to_type(ugly(dims), DType::kF64)}});
    }
  }
  for (const char* op : {"Exp", "Tan"})  // several pieces of work
    for (const DType type : {DType::kF32, DType::kF16})
      check_case({op, {to_type(floats({40000}), type)}, {}, 1, 0x1p-10});
  check_case({"Gelu", {ugly({300})}, {{"approximate", std::string("tanh")}}, 1, 5 * ulp, 2e-5});
  check_case({"HardSigmoid", {ugly({300})}, {{"alpha", 0.5F}, {"beta", 0.6F}}, 1, 5 * ulp, 1e-6});
  check_case({"LeakyRelu", {ugly({300})}, {{"alpha", -2.0F}}});
  check_case({"Swish", {ugly({300})}, {{"alpha", 1.702F}}, 1, 5 * ulp, 1e-37});
}

TEST(Elementwise, UnaryGoldenValues) {
  const double ulp = 0x1p-23;
  const Tensor x = of({6}, {-2, -0.5F, 0, 0.5F, 1.5F, 2.5F});
  check_values({"Relu", {x}}, {of({6}, {0, 0, 0, 0.5F, 1.5F, 2.5F})});
  check_values({"Relu", {of({3}, {-0.0F, kNan, -kInf})}}, {of({3}, {-0.0F, kNan, 0})});
  check_values({"Round", {x}}, {of({6}, {-2, -0.0F, 0, 0, 2, 2})});
  check_values({"Sign", {of({3}, {-3, 0, kInf})}}, {of({3}, {-1, 0, 1})});
  check_values({"HardSwish", {of({4}, {-4, -1, 1, 4})}, {}, 1, 2 * ulp},
               {of({4}, {-0.0F, -1 / 3.0F, 2 / 3.0F, 4})});
  check_values({"HardSigmoid", {of({3}, {-3, 0, 3})}, {}, 1, 2 * ulp, 1e-7}, {of({3}, {0, 0.5F, 1})});
  // NumPy: 0.5 x (1 + erf(x / sqrt(2))), and with tanh.
  check_values({"Gelu", {x}, {}, 1, 4 * ulp, 3e-7},
               {of({6}, {-0.04550026F, -0.15426877F, 0, 0.34573123F, 1.39978919F, 2.48447584F})});
  check_values({"Gelu", {x}, {{"approximate", std::string("tanh")}}, 1, 4 * ulp, 3e-7},
               {of({6}, {-0.04540231F, -0.15428599F, 0, 0.34571401F, 1.39957216F, 2.48491635F})});
  check_values({"Softplus", {of({3}, {0, 100, -100})}, {}, 1, 2 * ulp},
               {of({3}, {0.69314718F, 100, 3.7835059e-44F})});
  check_values({"Not", {Tensor::from<std::uint8_t>(DType::kBool, {3}, {0, 1, 1})}},
               {Tensor::from<std::uint8_t>(DType::kBool, {3}, {1, 0, 0})});
  check_values({"Neg", {Tensor::from<std::int8_t>(DType::kI8, {3}, {-128, 0, 5})}},
               {Tensor::from<std::int8_t>(DType::kI8, {3}, {-128, 0, -5})});
  check_values({"Abs", {Tensor::from<std::int32_t>(DType::kI32, {2}, {INT32_MIN, -5})}},
               {Tensor::from<std::int32_t>(DType::kI32, {2}, {INT32_MIN, 5})});
  check_values({"IsInf", {of({3}, {kInf, -kInf, kNan})}, {{"detect_negative", std::int64_t{0}}}},
               {Tensor::from<std::uint8_t>(DType::kBool, {3}, {1, 0, 0})});
  check_values({"IsNaN", {of({2}, {kInf, kNan})}}, {Tensor::from<std::uint8_t>(DType::kBool, {2}, {0, 1})});
}

TEST(Elementwise, BroadcastingInEveryPattern) {
  const std::vector<std::pair<Dims, Dims>> shapes = {{{2, 3, 5}, {2, 3, 5}},    {{2, 3, 5}, {}},
                                                     {{}, {2, 3, 5}},           {{64, 50}, {50}},
                                                     {{2, 8, 7, 7}, {8, 1, 1}}, {{2, 1, 1, 8}, {2, 7, 7, 8}},
                                                     {{2, 1, 3}, {4, 1}},       {{1, 1}, {1}},
                                                     {{0, 3}, {1, 3}},          {{3, 1, 5}, {3, 4, 1}},
                                                     {{300, 301}, {300, 1}},    {{1}, {}}};
  for (const auto& [a, b] : shapes) {
    for (const char* op :
         {"Add", "Sub", "Mul", "Div", "Min", "Max", "Pow", "Mod", "Less", "Equal", "GreaterOrEqual"}) {
      const std::string word = op;
      for (const DType type :
           {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kI32, DType::kU8, DType::kI64}) {
        Attributes attrs;
        if (word == "Mod" && is_float(type)) attrs["fmod"] = std::int64_t{1};
        const float low = word == "Pow" ? 0.5F : -7;
        check_case({op, {to_type(floats(a, 1, low, 7), type), to_type(floats(b, 2, low, 7), type)}, attrs});
      }
    }
    check_case(
        {"Where",
         {to_type(to_type(floats(a, 5, -2, 2), DType::kI32), DType::kBool), floats(b, 6), floats({}, 7)}});
  }
}

TEST(Elementwise, BinaryGoldenValues) {
  const auto i32 = [](const std::vector<std::int32_t>& v) {
    return Tensor::from<std::int32_t>(DType::kI32, {static_cast<std::int64_t>(v.size())}, v);
  };
  const auto boolean = [](const std::vector<std::uint8_t>& v) {
    return Tensor::from<std::uint8_t>(DType::kBool, {static_cast<std::int64_t>(v.size())}, v);
  };
  check_values({"Div", {i32({7, -7, 5, INT32_MIN}), i32({2, 2, 0, -1})}}, {i32({3, -3, 0, INT32_MIN})});
  check_values({"Mod", {i32({-4, 7, 5, 4}), i32({3, -3, 0, -1})}}, {i32({2, -2, 0, 0})});
  check_values({"Mod", {i32({-4, 7}), i32({3, -3})}, {{"fmod", std::int64_t{1}}}}, {i32({-1, 1})});
  check_values({"Pow", {i32({2, -1, 3, 0}), i32({10, -3, -1, 0})}}, {i32({1024, -1, 0, 1})});
  check_values({"Pow", {i32({2, 9}), of({2}, {0.5F, 0.5F})}}, {i32({1, 3})});
  check_values({"Max", {of({3}, {kNan, 1, -0.0F}), of({3}, {1, kNan, -1})}}, {of({3}, {kNan, kNan, -0.0F})});
  check_values({"Min", {of({2}, {1, 2}), of({2}, {3, 0}), of({}, {0.5F})}}, {of({2}, {0.5F, 0})});
  check_values({"Mean", {of({2}, {1, 2}), of({2}, {3, 0}), of({1}, {0.5F})}}, {of({2}, {1.5F, 2.5F / 3})});
  check_values({"Sum", {of({2}, {1, 2})}}, {of({2}, {1, 2})});
  check_values({"Less", {of({3}, {kNan, 1, 2}), of({3}, {1, kNan, 3})}}, {boolean({0, 0, 1})});
  check_values({"Xor", {boolean({0, 1, 1}), boolean({1, 1, 0})}}, {boolean({1, 0, 1})});
  check_values({"BitShift",
                {Tensor::from<std::uint8_t>(DType::kU8, {3}, {255, 1, 1}),
                 Tensor::from<std::uint8_t>(DType::kU8, {3}, {1, 7, 8})},
                {{"direction", std::string("LEFT")}}},
               {Tensor::from<std::uint8_t>(DType::kU8, {3}, {254, 128, 0})});
  check_values({"PRelu", {of({2, 2}, {-1, 2, -3, 4}), of({2}, {0.5F, 2})}},
               {of({2, 2}, {-0.5F, 2, -1.5F, 4})});
}

TEST(Elementwise, PowersByName) {
  for (const float exponent : {0.5F, 1.0F, 2.0F, 3.0F, -1.0F, 2.5F}) {
    // Three products round twice: 2 units.
    OpCase c{"Pow", {ugly({50}), of({1}, {exponent})}, {}, 1, 0x1p-22, 1e-45};
    c.constants = true;
    check_case(c);
  }
}

}  // namespace
}  // namespace pare::testing
