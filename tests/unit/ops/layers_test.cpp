// Clip, Softmax, normalizations, reductions, pools and the plain linear kernels.
#include <limits>

#include "tests/unit/ops/op_case.h"

namespace pare::testing {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kUlp = 0x1p-23;

Attribute number(std::int64_t v) { return v; }

// All kernels that take the case give the same bits in each instruction class.
void expect_same_bits_in_every_class(const OpCase& c) {
  for (const Kernel* kernel : cpu_registry().candidates("", c.op, Backend::kCpu)) {
    set_isa(Isa::kScalar);
    const OpRun scalar = run_case(*kernel, c, 1);
    for (int level = 1; level <= static_cast<int>(std::min(best_isa(), Isa::kAvx512)); ++level) {
      set_isa(static_cast<Isa>(level));
      const OpRun other = run_case(*kernel, c, 2);
      ASSERT_EQ(scalar.out.size(), other.out.size());
      for (std::size_t i = 0; i < scalar.out.size(); ++i)
        EXPECT_TRUE(equal_bytes(scalar.out[i], other.out[i])) << kernel->name << " " << name(isa());
    }
  }
  set_isa(best_isa());
}

TEST(Layers, Clip) {
  const Tensor x = of({5}, {-3, -1, 0, kNan, 9});
  check_values({"Clip", {x, of({}, {-1}), of({}, {6})}}, {of({5}, {-1, -1, 0, kNan, 6})});
  check_values({"Clip", {x, Tensor(), of({}, {6})}}, {of({5}, {-3, -1, 0, kNan, 6})});  // no lower bound (S7)
  check_values({"Clip", {x, of({}, {-1})}}, {of({5}, {-1, -1, 0, kNan, 9})});
  check_values({"Clip", {of({2}, {1, 5}), of({}, {4}), of({}, {2})}}, {of({2}, {2, 2})});  // min above max
  check_case({"Clip", {floats({40000}), of({}, {-0.5F}), of({}, {0.25F})}});
  check_case(
      {"Clip", {to_type(floats({3000}), DType::kF16), to_type(of({}, {-0.5F}), DType::kF16), Tensor()}});
  check_values(
      {"Clip",
       {Tensor::from<std::int8_t>(DType::kI8, {3}, {-9, 0, 9}),
        Tensor::from<std::int8_t>(DType::kI8, {}, {-1}), Tensor::from<std::int8_t>(DType::kI8, {}, {1})}},
      {Tensor::from<std::int8_t>(DType::kI8, {3}, {-1, 0, 1})});
}

TEST(Layers, Softmax) {
  // exp 0.9 units, the sum of up to 300 terms in 16 lanes 24 units, the reciprocal and product 2.
  const double bound = 27 * kUlp;
  for (const char* op : {"Softmax", "LogSoftmax", "Hardmax"}) {
    // log of the sum and two subtractions: absolute, of values up to 20.
    const double absolute = std::string(op) == "LogSoftmax" ? 64 * kUlp : 1e-44;
    for (const Dims& dims :
         {Dims{3, 50}, Dims{2, 3, 17}, Dims{1}, Dims{4, 1}, Dims{5, 300}, Dims{0, 3}, Dims{2, 7, 33}})
      for (const std::int64_t axis : {std::int64_t{-1}, std::int64_t{0}}) {
        check_case({op, {floats(dims, 1, -9, 9)}, {{"axis", axis}}, 1, bound, absolute});
        check_case({op, {to_type(floats(dims, 1, -9, 9), DType::kF64)}, {{"axis", axis}}});
        check_case(
            {op, {to_type(floats(dims, 1, -9, 9), DType::kBF16)}, {{"axis", axis}}, 1, 0x1p-7, absolute});
        expect_same_bits_in_every_class({op, {floats(dims, 1, -9, 9)}, {{"axis", axis}}});
      }
    check_case({op, {floats({2, 5, 6}, 1, -9, 9)}, {{"axis", number(1)}}, 1, bound, absolute});
  }
  check_values({"Softmax", {of({2, 2}, {1000, 1000, -1000, 0})}, {}, 1, bound},
               {of({2, 2}, {0.5F, 0.5F, 0, 1})});
  check_values({"Softmax", {of({2, 2}, {kNan, 0, kInf, 0})}}, {of({2, 2}, {kNan, kNan, kNan, kNan})});
  check_values({"LogSoftmax", {of({1, 2}, {0, 0})}, {}, 1, bound},
               {of({1, 2}, {-0.69314718F, -0.69314718F})});
  check_values({"Hardmax", {of({1, 3}, {1, 3, 3})}}, {of({1, 3}, {0, 1, 0})});
}

TEST(Layers, Normalizations) {
  // Values near 1 (after normalization, times scale, plus bias): sums of up to 400 terms in 16 lanes, 25
  // terms a lane, relative error 25 units in the variance, half of that in its root; 40 units of 4 absolute
  // hold.
  const double absolute = 160 * kUlp;
  for (const Dims& dims : {Dims{2, 5, 192}, Dims{3, 8}, Dims{7, 1}, Dims{2, 400}, Dims{4, 17}}) {
    const std::int64_t n = dims.back();
    const Tensor scale = floats({n}, 2, 0.5F, 2), bias = floats({n}, 3);
    check_case({"LayerNormalization", {floats(dims, 1, -3, 5), scale, bias}, {}, 3, kUlp, absolute});
    check_case({"LayerNormalization", {floats(dims, 1, -3, 5), scale}, {}, 1, kUlp, absolute});
    check_case({"RMSNormalization", {floats(dims, 1, -3, 5), scale}, {}, 1, kUlp, absolute});
    check_case({"LayerNormalization",
                {to_type(floats(dims, 1, -3, 5), DType::kF16), to_type(scale, DType::kF16),
                 to_type(bias, DType::kF16)},
                {},
                1,
                0x1p-10,
                2e-3});
    expect_same_bits_in_every_class({"LayerNormalization", {floats(dims, 1, -3, 5), scale, bias}, {}, 3});
    expect_same_bits_in_every_class({"RMSNormalization", {floats(dims, 1, -3, 5), scale}});
  }
  check_case({"LayerNormalization",
              {floats({2, 3, 4}), floats({3, 4}, 2), floats({3, 4}, 3)},
              {{"axis", number(1)}},
              3,
              kUlp,
              absolute});
  check_case(
      {"LayerNormalization", {floats({2, 3, 4}), floats({4}, 2)}, {{"axis", number(1)}}, 1, kUlp, absolute});
  // A large mean: the squares are taken of what is left. 1000 has 13 bits before the point's 2^-10.
  check_case({"LayerNormalization", {floats({4, 64}, 1, 1000, 1001), floats({64}, 2)}, {}, 1, kUlp, 1e-2});
  for (const Dims& dims : {Dims{2, 6, 5, 5}, Dims{3, 4, 7}, Dims{1, 6, 1, 1}}) {
    const std::int64_t c = dims[1];
    const Tensor scale = floats({c}, 2, 0.5F, 2), bias = floats({c}, 3), mean = floats({c}, 4),
                 var = floats({c}, 5, 0.1F, 2);
    check_case({"BatchNormalization", {floats(dims), scale, bias, mean, var}, {}, 1, kUlp, absolute});
    check_case({"InstanceNormalization", {floats(dims), scale, bias}, {}, 1, kUlp, absolute});
    check_case(
        {"GroupNormalization", {floats(dims), scale, bias}, {{"num_groups", number(2)}}, 1, kUlp, absolute});
  }
  // (x - 2) / sqrt(2/3 + 1e-5): NumPy.
  check_values({"LayerNormalization",
                {of({1, 3}, {1, 2, 3}), of({3}, {1, 1, 1}), of({3}, {0, 0, 1})},
                {},
                1,
                8 * kUlp,
                1e-7},
               {of({1, 3}, {-1.22473563F, 0, 2.22473563F})});
  check_values({"RMSNormalization", {of({1, 2}, {3, 4}), of({2}, {1, 2})}, {{"epsilon", 0.0F}}, 1, 8 * kUlp},
               {of({1, 2}, {0.84852814F, 2.26274170F})});
  check_values({"BatchNormalization",
                {of({1, 1, 2}, {1, 3}), of({1}, {2}), of({1}, {1}), of({1}, {1}), of({1}, {4})},
                {{"epsilon", 0.0F}},
                1,
                4 * kUlp},
               {of({1, 1, 2}, {1, 3})});
  check_values({"LpNormalization", {of({1, 2}, {3, 4})}, {}, 1, 2 * kUlp}, {of({1, 2}, {0.6F, 0.8F})});
}

TEST(Layers, Reductions) {
  // Positive terms: n / 16 units; up to 64 terms a lane or column.
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceMax",
                         "ReduceMin", "ReduceProd", "ReduceLogSum", "ReduceLogSumExp"}) {
    for (const Ints& axes : std::vector<Ints>{{-1}, {0}, {1, 2}, {0, 2}, {}, {0, 1, 2, 3}})
      for (const std::int64_t keep : {0, 1}) {
        OpCase c{op, {floats({3, 5, 8, 21}, 1, 0.5F, 1.5F), ints(axes)}, {{"keepdims", keep}}, 1, 170 * kUlp};
        c.constants = true;
        if (std::string(op) != "ReduceProd") check_case(c);
        expect_same_bits_in_every_class(c);
        c.in[0] = to_type(floats({2, 3, 2, 4}, 1, -9, 9), DType::kI32);
        check_case(c);
      }
    check_case({op, {floats({3, 4}, 1, 0.5F, 1.5F)}, {{"noop_with_empty_axes", number(1)}}});
  }
  const Tensor x = of({2, 3}, {1, -2, 3, -4, 5, 6});
  check_values({"ReduceSum", {x, ints({1})}, {{"keepdims", number(0)}}}, {of({2}, {2, 7})});
  check_values({"ReduceMean", {x}}, {of({1, 1}, {1.5F})});
  check_values({"ReduceMax", {of({2, 2}, {1, kNan, -0.0F, -kInf}), ints({1})}}, {of({2, 1}, {kNan, -0.0F})});
  check_values({"ReduceProd", {x, ints({0})}}, {of({1, 3}, {-4, -10, 18})});
  check_values({"ReduceLogSumExp", {of({1, 2}, {1000, 1000}), ints({1})}, {}, 1, 2 * kUlp},
               {of({1, 1}, {1000.69314718F})});
  check_values({"ReduceSum", {Tensor::allocate(DType::kF32, {2, 0}), ints({1})}}, {of({2, 1}, {0, 0})});
  check_values({"ReduceMax", {Tensor::allocate(DType::kF32, {2, 0}), ints({1})}},
               {of({2, 1}, {-kInf, -kInf})});
  check_values({"ReduceMean", {Tensor::from<std::int32_t>(DType::kI32, {3}, {1, 2, 5})}},
               {Tensor::from<std::int32_t>(DType::kI32, {1}, {2})});
}

TEST(Layers, AlongAnAxis) {
  const Tensor x = of({2, 3}, {1, 3, 3, kNan, 5, 2});
  check_values({"ArgMax", {x}, {{"axis", number(1)}, {"keepdims", number(0)}}}, {ints({1, 0})});
  check_values({"ArgMax", {of({3}, {1, 3, 3})}, {{"select_last_index", number(1)}}}, {ints({2})});
  check_values({"ArgMin", {of({3}, {1, 3, 1})}}, {ints({0})});
  check_values({"CumSum", {of({3}, {1, 2, 3}), ints({0}).reshaped({})}}, {of({3}, {1, 3, 6})});
  check_values({"CumSum",
                {of({3}, {1, 2, 3}), ints({0}).reshaped({})},
                {{"exclusive", number(1)}, {"reverse", number(1)}}},
               {of({3}, {5, 3, 0})});
  check_values({"TopK", {of({4}, {1, 4, 4, 2}), ints({3})}, {}, 2}, {of({3}, {4, 4, 2}), ints({1, 2, 3})});
  check_values({"TopK", {of({4}, {1, 4, 4, 2}), ints({2})}, {{"largest", number(0)}}, 2},
               {of({2}, {1, 2}), ints({0, 3})});
}

TEST(Layers, Pools) {
  const Tensor x = counting(DType::kF32, {1, 1, 4, 4});
  const Ints two = {2, 2};
  check_values({"MaxPool", {x}, {{"kernel_shape", two}, {"strides", two}}, 2},
               {of({1, 1, 2, 2}, {6, 8, 14, 16}),
                Tensor::from<std::int64_t>(DType::kI64, {1, 1, 2, 2}, {5, 7, 13, 15})});
  check_values({"AveragePool", {x}, {{"kernel_shape", two}, {"strides", two}, {"pads", Ints{1, 1, 1, 1}}}},
               {of({1, 1, 3, 3}, {1, 2.5F, 4, 7, 8.5F, 10, 13, 14.5F, 16})});
  check_values({"AveragePool",
                {x},
                {{"kernel_shape", two},
                 {"strides", two},
                 {"pads", Ints{1, 1, 1, 1}},
                 {"count_include_pad", number(1)}}},
               {of({1, 1, 3, 3}, {0.25F, 1.25F, 1, 3.5F, 8.5F, 5, 3.25F, 7.25F, 4})});
  check_values({"GlobalAveragePool", {x}}, {of({1, 1, 1, 1}, {8.5F})});
  for (const char* op : {"GlobalAveragePool", "GlobalMaxPool"}) {
    // A lane sums 11 terms, then 4 additions: 16 units of values below 1.
    check_case({op, {floats({2, 3, 13, 13})}, {}, 1, kUlp, 16 * kUlp});
    expect_same_bits_in_every_class({op, {floats({2, 3, 13, 13})}});
  }
  check_values({"GlobalMaxPool", {x}}, {of({1, 1, 1, 1}, {16})});
  check_values({"MaxPool", {of({1, 1, 3}, {kNan, 1, 2})}, {{"kernel_shape", Ints{2}}}},
               {of({1, 1, 2}, {kNan, 2})});
  check_values({"MaxPool",
                {Tensor::from<std::int8_t>(DType::kI8, {1, 1, 3}, {-5, -6, -7})},
                {{"kernel_shape", Ints{2}}, {"pads", Ints{1, 0}}}},
               {Tensor::from<std::int8_t>(DType::kI8, {1, 1, 3}, {-5, -5, -6})});
  check_case({"MaxPool",
              {floats({2, 3, 9, 8, 7})},
              {{"kernel_shape", Ints{3, 2, 2}}, {"dilations", Ints{2, 1, 2}}, {"ceil_mode", number(1)}},
              2});
}

TEST(Layers, PlainLinearKernels) {
  // Fast kernels sum in float32: at most k products of values below 1, each rounding 2^-24 of the sum.
  const auto bound = [](double k) { return k * k * 0x1p-24; };
  check_case({"Conv",
              {floats({2, 3, 8, 8}), floats({4, 3, 3, 3}, 2), floats({4}, 3)},
              {{"pads", Ints{1, 1, 1, 1}}},
              1,
              kUlp,
              bound(28)});
  check_case({"Conv",
              {floats({1, 4, 9}), floats({6, 2, 3}, 2)},
              {{"group", number(2)}, {"strides", Ints{2}}},
              1,
              kUlp,
              bound(6)});
  check_values(
      {"Conv", {counting(DType::kF32, {1, 1, 3, 3}), of({1, 1, 2, 2}, {1, 0, 0, -1}), of({1}, {10})}},
      {of({1, 1, 2, 2}, {6, 6, 6, 6})});
  check_values({"Conv", {counting(DType::kF32, {1, 1, 1, 2, 2}), of({1, 1, 1, 2, 2}, {1, 2, 3, 4})}},
               {of({1, 1, 1, 1, 1}, {30})});
  check_values(
      {"ConvTranspose", {of({1, 1, 2}, {1, 2}), of({1, 1, 3}, {1, 10, 100})}, {{"strides", Ints{2}}}},
      {of({1, 1, 5}, {1, 10, 102, 20, 200})});
  check_values({"ConvTranspose",
                {of({1, 1, 2}, {1, 2}), of({1, 1, 3}, {1, 10, 100})},
                {{"strides", Ints{2}}, {"pads", Ints{1, 1}}, {"output_padding", Ints{1}}}},
               {of({1, 1, 4}, {10, 102, 20, 200})});
  check_values({"ConvTranspose",
                {of({1, 2, 1}, {1, 2}), of({2, 1, 2}, {1, 10, 3, 4}), of({2}, {0, 100})},
                {{"group", number(2)}}},
               {of({1, 2, 2}, {1, 10, 106, 108})});
  check_case({"MatMul", {floats({2, 1, 5, 7}), floats({3, 7, 4}, 2)}, {}, 1, kUlp, bound(7)});
  check_case({"MatMul", {floats({7}), floats({7}, 2)}, {}, 1, kUlp, bound(7)});
  check_values({"MatMul",
                {Tensor::from<std::int32_t>(DType::kI32, {1, 2}, {INT32_MAX, 2}),
                 Tensor::from<std::int32_t>(DType::kI32, {2, 1}, {2, 3})}},
               {Tensor::from<std::int32_t>(DType::kI32, {1, 1}, {4})});  // wraps
  for (const std::int64_t ta : {0, 1})
    for (const std::int64_t tb : {0, 1})
      for (const Dims& c : {Dims{}, Dims{4}, Dims{3, 1}, Dims{3, 4}})
        check_case(
            {"Gemm",
             {floats(ta ? Dims{5, 3} : Dims{3, 5}), floats(tb ? Dims{4, 5} : Dims{5, 4}, 2), floats(c, 3)},
             {{"transA", ta}, {"transB", tb}, {"alpha", 0.5F}, {"beta", 2.0F}},
             1,
             kUlp,
             bound(8)});
  check_case({"MatMul", {to_type(floats({3, 5}), DType::kF16), to_type(floats({5, 2}, 2), DType::kF16)}});
}

// Rows S1 to S5 of public bug reports against other runtimes.
TEST(Layers, QuantizersRoundTheQuotientInThePrecisionOfTheScale) {
  const auto f16 = [](const std::vector<float>& v) {
    return to_type(of({static_cast<std::int64_t>(v.size())}, v), DType::kF16);
  };
  const auto scalar16 = [](float v) { return to_type(of({}, {v}), DType::kF16); };
  const auto s8 = [](const std::vector<std::int8_t>& v) {
    return Tensor::from<std::int8_t>(DType::kI8, {static_cast<std::int64_t>(v.size())}, v);
  };
  const Tensor zero = Tensor::from<std::int8_t>(DType::kI8, {}, {0});
  check_values(
      {"QuantizeLinear", {f16({0.050018310546875F, -0.050018310546875F}), scalar16(0.0999755859375F), zero}},
      {s8({1, -1})});
  check_values({"QuantizeLinear",
                {f16({2.11F, 2.5F, 2.6F, 5.3F, 5.5F, 5.9F, 61.3F, 62.5F, 80.9F}), scalar16(1), zero}},
               {s8({2, 2, 3, 5, 6, 6, 61, 62, 81})});
  const Tensor x = floats({32}, 8, -100, 100);
  const Tensor narrow = to_type(x, DType::kF16);
  check_values({"QuantizeLinear", {narrow, scalar16(1), zero}},
               check_case({"QuantizeLinear", {to_type(narrow, DType::kF32), of({}, {1}), zero}}));
  check_values({"QuantizeLinear", {of({7}, {-129, -128, -127, -126, 126, 127, 128}), of({}, {1}), zero}},
               {s8({-128, -128, -127, -126, 126, 127, 127})});
  check_values({"QuantizeLinear", {of({1}, {3}), of({}, {1}), zero}, {{"output_dtype", number(3)}}},
               {s8({3})});
  // The quotient 16.03 is 16 in bfloat16 (8 bits), 2.4999 is 2.5.
  OpCase narrow_division{
      "QuantizeLinear", {of({2}, {16.03F, 2.4999F}), of({}, {1}), zero}, {{"precision", number(16)}}};
  check_values(narrow_division, {s8({16, 2})});
  check_values({"DequantizeLinear", {s8({-128, 3}), scalar16(0.5F)}}, {f16({-64, 1.5F})});
}

TEST(Layers, IntegerProductsAreExact) {
  const auto u8 = [](Dims dims, const std::vector<std::uint8_t>& v) {
    return Tensor::from<std::uint8_t>(DType::kU8, std::move(dims), v);
  };
  const auto s8 = [](Dims dims, const std::vector<std::int8_t>& v) {
    return Tensor::from<std::int8_t>(DType::kI8, std::move(dims), v);
  };
  const auto s32 = [](Dims dims, const std::vector<std::int32_t>& v) {
    return Tensor::from<std::int32_t>(DType::kI32, std::move(dims), v);
  };
  // S10 and S11: results that 16-bit saturation gets wrong.
  check_values({"MatMulInteger", {u8({1, 3}, {210, 198, 234}), s8({3, 1}, {-81, -80, 127})}},
               {s32({1, 1}, {-3132})});
  check_values({"MatMulInteger",
                {u8({3, 3}, {238, 115, 94, 245, 111, 102, 158, 225, 48}),
                 s8({3, 3}, {25, 36, 125, 42, -123, 76, -81, -86, 35}), u8({}, {42}), s8({}, {-26})}},
               {s32({3, 3}, {12100, 1951, 40214, 11745, 2293, 41351, 18030, -10919, 36548})});
  // Padding is the zero point, so it adds nothing.
  check_values({"ConvInteger",
                {u8({1, 1, 2}, {12, 13}), s8({1, 1, 3}, {1, 2, 3}), u8({}, {10})},
                {{"pads", Ints{1, 1}}}},
               {s32({1, 1, 2}, {13, 8})});
  check_values({"QLinearMatMul",
                {u8({1, 2}, {3, 5}), of({}, {0.5F}), u8({}, {1}), s8({2, 1}, {10, -4}), of({}, {0.25F}),
                 s8({}, {0}), of({}, {0.125F}), s8({}, {-3})}},
               {s8({1, 1}, {1})});  // (2 * 10 + 4 * -4) * 0.5 * 0.25 / 0.125 - 3
  check_values({"DynamicQuantizeLinear", {of({3}, {0, 2, -3})}, {}, 3},
               {u8({3}, {153, 255, 0}), of({}, {5 / 255.0F}), u8({}, {153})});
  check_values({"DynamicQuantizeLinear", {of({2}, {0, 0})}, {}, 3},
               {u8({2}, {0, 0}), of({}, {0}), u8({}, {0})});
}

TEST(Layers, ResizeAndRecurrent) {
  const Tensor row = of({1, 1, 1, 4}, {1, 2, 3, 4});
  const auto resized = [&](const char* mode, const char* coordinates, Ints sizes,
                           const std::vector<float>& want) {
    const std::int64_t width = sizes.back();
    check_values({"Resize",
                  {row, Tensor(), Tensor(), ints(std::move(sizes))},
                  {{"mode", std::string(mode)}, {"coordinate_transformation_mode", std::string(coordinates)}},
                  1,
                  kUlp},
                 {of({1, 1, 1, width}, want)});
  };
  resized("nearest", "half_pixel", {1, 1, 1, 8}, {1, 1, 2, 2, 3, 3, 4, 4});
  resized("nearest", "asymmetric", {1, 1, 1, 2}, {1, 3});
  resized("linear", "half_pixel", {1, 1, 1, 8}, {1, 1.25F, 1.75F, 2.25F, 2.75F, 3.25F, 3.75F, 4});
  resized("linear", "align_corners", {1, 1, 1, 7}, {1, 1.5F, 2, 2.5F, 3, 3.5F, 4});
  resized("cubic", "half_pixel", {1, 1, 1, 2}, {1.40625F, 3.59375F});
  for (const char* mode : {"nearest", "linear", "cubic"})
    for (const char* coordinates : {"half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"})
      for (const std::int64_t antialias : {0, 1})
        // Up to 14 taps an axis of values and weights below 2, two axes: 2 * 14 * 2 units.
        if (antialias == 0 || std::string(mode) != "nearest")
          check_case({"Resize",
                      {floats({2, 3, 7, 9}), Tensor(), Tensor(), ints({2, 3, 4, 22})},
                      {{"mode", std::string(mode)},
                       {"coordinate_transformation_mode", std::string(coordinates)},
                       {"antialias", antialias}},
                      1,
                      0,
                      56 * kUlp});
  // One step from zero states with weights of 1: GRU: z = r = sigmoid(1), n = tanh(1), h = (1 - z) n. NumPy.
  const Tensor one = of({1, 1, 1}, {1});
  check_values({"RNN", {one, one, one}, {}, 2, 2 * kUlp},
               {of({1, 1, 1, 1}, {0.76159416F}), of({1, 1, 1}, {0.76159416F})});
  const Tensor three = of({1, 3, 1}, {1, 1, 1}), four = of({1, 4, 1}, {1, 1, 1, 1});
  check_values({"GRU", {one, three, three}, {}, 2, 2 * kUlp},
               {of({1, 1, 1, 1}, {0.20482422F}), of({1, 1, 1}, {0.20482422F})});
  check_values({"LSTM", {one, four, four}, {}, 3, 2 * kUlp},
               {of({1, 1, 1, 1}, {0.36960635F}), of({1, 1, 1}, {0.36960635F}), of({1, 1, 1}, {0.55676997F})});
}

TEST(Layers, PoolsRowByRow) {
  struct Form {
    Dims x;
    Ints kernel, strides, dilations, pads;
  };
  const Form forms[] = {{{2, 3, 9, 40}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
                        {{1, 2, 9, 200}, {2, 3}, {2, 2}, {1, 1}, {0, 1, 1, 0}},
                        {{1, 2, 9, 11}, {3, 3}, {1, 3}, {2, 3}, {2, 3, 2, 0}},
                        {{1, 2, 7}, {3}, {2}, {1}, {1, 1}},
                        {{1, 2, 5, 6, 7}, {2, 3, 2}, {1, 2, 2}, {1, 1, 1}, {0, 1, 0, 1, 0, 1}},
                        {{1, 1, 2, 2}, {5, 5}, {1, 1}, {1, 1}, {2, 2, 2, 2}},
                        {{0, 1, 4, 4}, {2, 2}, {1, 1}, {1, 1}, {0, 0, 0, 0}}};
  for (const Form& f : forms)
    for (const std::int64_t ceil : {0, 1}) {
      Attributes attrs = {{"kernel_shape", f.kernel},
                          {"strides", f.strides},
                          {"dilations", f.dilations},
                          {"pads", f.pads},
                          {"ceil_mode", ceil}};
      check_case({"MaxPool", {floats(f.x)}, attrs});
      expect_same_bits_in_every_class({"MaxPool", {floats(f.x)}, attrs});
      for (const std::int64_t padded : {0, 1}) {
        attrs["count_include_pad"] = padded;
        // At most 25 numbers below 1: 25 roundings, one of the division.
        check_case({"AveragePool", {floats(f.x)}, attrs, 1, 0, 26 * 0x1p-24});
        expect_same_bits_in_every_class({"AveragePool", {floats(f.x)}, attrs});
      }
    }
  check_values({"MaxPool", {of({1, 1, 4}, {1, kNan, -kInf, -2})}, {{"kernel_shape", Ints{2}}}},
               {of({1, 1, 3}, {kNan, kNan, -2})});
}

TEST(Layers, PadByWhatIsThere) {
  for (const char* mode : {"edge", "reflect", "wrap"})
    for (const Ints& pads : {Ints{0, 2, 1, 3}, Ints{1, 0, 0, 0}, Ints{-1, 1, 0, -2}, Ints{3, 9, 4, 0}}) {
      const Attributes attrs = {{"mode", std::string(mode)}};
      check_case({"Pad", {floats({4, 5}), ints(pads)}, attrs});
      check_case({"Pad", {counting(DType::kI8, {4, 5}), ints(pads)}, attrs});
    }
  check_values({"Pad", {of({3}, {1, 2, 3}), ints({2, 2})}, {{"mode", std::string("reflect")}}},
               {of({7}, {3, 2, 1, 2, 3, 2, 1})});
  check_case({"Pad", {floats({0, 3}), ints({0, 1, 0, 1})}, {{"mode", std::string("edge")}}});
}

TEST(Layers, AttentionAndRotation) {
  // Scores 0 and ln 3 (scale 1): weights 1/4 and 3/4.
  const Tensor q = of({1, 1, 1, 1}, {1}), k = of({1, 1, 2, 1}, {0, 1.0986123F}),
               v = of({1, 1, 2, 2}, {4, 8, 0, 4});
  const Attributes one = {{"scale", 1.0F}};
  check_values({"Attention", {q, k, v}, one, 1, 4 * kUlp}, {of({1, 1, 1, 2}, {1, 5})});
  // A mask that hides the second key; a past that adds one more like the first.
  const Tensor hide = Tensor::from<std::uint8_t>(DType::kBool, {1, 2}, {1, 0});
  check_values({"Attention", {q, k, v, hide}, one}, {of({1, 1, 1, 2}, {4, 8})});
  check_values(
      {"Attention", {q, k, v, Tensor(), of({1, 1, 1, 1}, {0}), of({1, 1, 1, 2}, {4, 8})}, one, 3, 4 * kUlp},
      {of({1, 1, 1, 2}, {1.6F, 5.6F}), of({1, 1, 3, 1}, {0, 0, 1.0986123F}),
       of({1, 1, 3, 2}, {4, 8, 4, 8, 0, 4})});
  // Two query heads share one key head; causal: the first query sees the first key alone.
  const Attributes grouped = {
      {"scale", 1.0F}, {"q_num_heads", number(2)}, {"kv_num_heads", number(1)}, {"is_causal", number(1)}};
  check_values({"Attention",
                {of({1, 2, 2}, {1, 1, 1, 0}), of({1, 2, 1}, {0, 1.0986123F}), of({1, 2, 1}, {4, 0})},
                grouped,
                1,
                4 * kUlp},
               {of({1, 2, 2}, {4, 4, 1, 2})});
  // A quarter turn of (1, 2): (a cos - b sin, a sin + b cos).
  check_values(
      {"RotaryEmbedding", {of({1, 1, 1, 4}, {1, 2, 3, 4}), of({1, 1, 2}, {0, 1}), of({1, 1, 2}, {1, 0})}},
      {of({1, 1, 1, 4}, {-3, 2, 1, 4})});
  check_values({"RotaryEmbedding",
                {of({1, 1, 1, 4}, {1, 2, 3, 4}), of({2, 2}, {9, 9, 0, 1}), of({2, 2}, {9, 9, 1, 0}),
                 Tensor::from<std::int64_t>(DType::kI64, {1, 1}, {1})},
                {{"interleaved", number(1)}}},
               {of({1, 1, 1, 4}, {-2, 1, 3, 4})});
}

}  // namespace
}  // namespace pare::testing
