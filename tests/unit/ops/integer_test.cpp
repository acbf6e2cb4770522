// MatMulInteger, ConvInteger, QLinearMatMul, QLinearConv, and the types of QuantizeLinear and
// DequantizeLinear that models of other tools carry. Integer results are exact; all kernels are compared with
// the plain one bit for bit.
#include <random>

#include "tests/unit/ops/op_case.h"

namespace pare::testing {
namespace {

Tensor codes(DType type, Dims dims, std::uint32_t seed) {
  Tensor t = Tensor::allocate(type, std::move(dims));
  std::mt19937 rng(seed);
  for (std::int64_t i = 0; i < t.size(); ++i) t.mut<std::uint8_t>()[i] = static_cast<std::uint8_t>(rng());
  return t;
}

TEST(Integer, ProductsOfEveryTypeAndZeroPoint) {
  for (const DType a : {DType::kU8, DType::kI8})
    for (const DType b : {DType::kU8, DType::kI8})
      for (const bool constants : {false, true})
        for (const Dims& dims : {Dims{1, 1, 1}, Dims{7, 33, 17}, Dims{13, 130, 70}, Dims{6, 64, 64},
                                 Dims{2, 0, 3}, Dims{0, 4, 3}}) {
          const std::int64_t m = dims[0], k = dims[1], n = dims[2];
          OpCase c{"MatMulInteger", {codes(a, {m, k}, 1), codes(b, {k, n}, 2)}};
          c.constants = constants;
          check_case(c);
          c.in.push_back(codes(a, {}, 3));
          c.in.push_back(codes(b, {}, 4));
          check_case(c);
          c.in[2] = codes(a, {m, 1}, 5);
          c.in[3] = codes(b, {1, n}, 6);
          if (m > 1 && n > 1) check_case(c);
        }
  OpCase tall{
      "MatMulInteger",
      {codes(DType::kU8, {2, 3, 5, 40}, 7), codes(DType::kI8, {1, 1, 40, 20}, 8), codes(DType::kU8, {1}, 9)}};
  check_case(tall);
}

TEST(Integer, TheWidestSumsAreExact) {
  // 255 * -128 * 65,000 fits int32; with zero points of the other end it does not, and wraps as the plain
  // loop does.
  Tensor a = Tensor::allocate(DType::kU8, {1, 65'000}), b = Tensor::allocate(DType::kI8, {65'000, 1});
  std::fill_n(a.mut<std::uint8_t>(), a.size(), std::uint8_t{255});
  std::fill_n(b.mut<std::int8_t>(), b.size(), std::int8_t{-128});
  const std::vector<Tensor> y = check_case({"MatMulInteger", {a, b}});
  EXPECT_EQ(*y[0].as<std::int32_t>(), -255 * 128 * 65'000);
  check_case({"MatMulInteger", {a, b, Tensor(), to_type(of({}, {127}), DType::kI8)}});
}

TEST(Integer, ScalesAndZeroPointsOfRowsAndColumnsOfEveryMatrix) {
  const auto u8 = [](Dims dims, const std::vector<std::uint8_t>& v) {
    return Tensor::from<std::uint8_t>(DType::kU8, std::move(dims), v);
  };
  // Two matrices of two rows, one column: (a - za) sa * (b - zb) sb / sy + zy, all by hand.
  const std::vector<Tensor> y =
      check_case({"QLinearMatMul",
                  {u8({2, 2, 1}, {10, 20, 30, 40}), of({2, 2, 1}, {1, 2, 3, 4}),
                   u8({2, 2, 1}, {0, 10, 20, 30}), u8({2, 1, 1}, {6, 8}), of({2, 1, 1}, {0.5F, 1}),
                   u8({2, 1, 1}, {2, 4}), of({2, 1}, {1, 2}), u8({2, 1}, {0, 100})}});
  EXPECT_TRUE(equal_bytes(y[0], u8({2, 2, 1}, {20, 120, 120, 180})));
}

TEST(Integer, ConvolutionsOfOneTwoThreeAndFourAxes) {
  for (const std::size_t axes : {1U, 2U, 3U, 4U}) {
    Dims x{1, 2}, w{4, 1}, ones(axes, 1);
    for (std::size_t i = 0; i < axes; ++i) x.push_back(3), w.push_back(2);
    const Attributes attrs{{"group", std::int64_t{2}}, {"pads", Dims(2 * axes, 1)}};
    const std::vector<Tensor> y = check_case({"ConvInteger",
                                              {codes(DType::kU8, x, 1), codes(DType::kI8, w, 2),
                                               codes(DType::kU8, {}, 3), codes(DType::kI8, {4}, 4)},
                                              attrs});
    EXPECT_EQ(y[0].dims().size(), axes + 2);
  }
}

TEST(Integer, ConvolutionsOfEveryTypeGroupAndZeroPoint) {
  for (const DType x : {DType::kU8, DType::kI8})
    for (const DType w : {DType::kU8, DType::kI8})
      for (const std::int64_t group : {1, 3, 6}) {
        const Attributes attrs{
            {"group", group}, {"pads", Dims{1, 0, 2, 1}}, {"strides", Dims{2, 1}}, {"dilations", Dims{1, 2}}};
        OpCase c{"ConvInteger", {codes(x, {2, 6, 11, 9}, 1), codes(w, {12, 6 / group, 3, 2}, 2)}, attrs};
        for (const bool constants : {false, true}) {
          c.constants = constants;
          c.in.resize(2);
          check_case(c);
          c.in.push_back(codes(x, {}, 3));
          c.in.push_back(codes(w, {}, 4));
          check_case(c);
          c.in[3] = codes(w, {12}, 5);
          check_case(c);
        }
      }
  check_case({"ConvInteger", {codes(DType::kU8, {0, 2, 3}, 1), codes(DType::kI8, {4, 2, 2}, 2)}});
}

TEST(Integer, DynamicRangesOfLargeTensors) {  // one pass of threads for the range, one for the codes
  Tensor x = floats({100'003}, 5, -3, 5);
  x.mut<float>()[100'002] = -7;
  x.mut<float>()[40'000] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Tensor> y = check_case({"DynamicQuantizeLinear", {x}, {}, 3});
  const float scale = *y[1].as<float>();
  EXPECT_NEAR(scale, 12 / 255.0F, 1e-4F);  // [-7, 5): the largest of 100,000 draws lies close to 5
  EXPECT_EQ(y[0].as<std::uint8_t>()[100'002], 0);
  EXPECT_EQ(y[0].as<std::uint8_t>()[40'000], 0);  // NaN
  EXPECT_EQ(*y[2].as<std::uint8_t>(), static_cast<std::uint8_t>(std::nearbyint(7 / scale)));
  check_case({"DynamicQuantizeLinear", {of({0}, {})}, {}, 3});
}

TEST(Integer, ProductsOfEightBitFloats) {
  const auto e4m3 = [](Dims dims, const std::vector<float>& v) {
    return to_type(of(std::move(dims), v), DType::kE4M3FN);
  };
  const std::vector<Tensor> y =
      check_case({"QLinearMatMul",
                  {e4m3({1, 2}, {1.5F, -2}), of({1}, {2}), e4m3({1}, {0}), e4m3({2, 1}, {4, 0.5F}),
                   of({1}, {1}), e4m3({1}, {0}), of({1}, {0.25F}), e4m3({1}, {0})}});
  EXPECT_EQ(element(y[0], 0), 40);  // (6 - 1) * 2 / 0.25
}

TEST(Integer, QuantizersOfNumbersAndPowersOfTwo) {
  const auto s8 = [](Dims dims, const std::vector<std::int8_t>& v) {
    return Tensor::from<std::int8_t>(DType::kI8, std::move(dims), v);
  };
  const auto s32 = [](Dims dims, const std::vector<std::int32_t>& v) {
    return Tensor::from<std::int32_t>(DType::kI32, std::move(dims), v);
  };
  const auto e8m0 = [](Dims dims, const std::vector<std::uint8_t>& v) {
    return Tensor::from<std::uint8_t>(DType::kE8M0, std::move(dims), v);
  };
  check_values({"QuantizeLinear", {s32({4}, {10, -7, 7, 1 << 30}), of({}, {2}), s8({}, {100})}},
               {s8({4}, {105, 96, 104, 127})});
  check_values({"QuantizeLinear", {of({2}, {4.5F, -100}), s32({}, {3}), s8({}, {0})}}, {s8({2}, {2, -33})});
  check_values({"QuantizeLinear", {of({2}, {5, 7}), e8m0({}, {128}), s8({}, {0})}},
               {s8({2}, {2, 4})});  // 2^1: 2.5, 3.5
  // MX blocks: E4M3 codes, one power of two for two neighbours.
  const Attributes blocks{
      {"axis", std::int64_t{1}}, {"block_size", std::int64_t{2}}, {"output_dtype", std::int64_t{1}}};
  check_values({"DequantizeLinear",
                {to_type(of({1, 4}, {1, -2, 3, 448}), DType::kE4M3FN), e8m0({1, 2}, {126, 130})},
                blocks},
               {of({1, 4}, {0.5F, -1, 24, 3584})});
  const Attributes halves{
      {"axis", std::int64_t{1}}, {"block_size", std::int64_t{2}}, {"output_dtype", std::int64_t{10}}};
  EXPECT_EQ(
      check_case(
          {"DequantizeLinear", {to_type(of({1, 2}, {1, -6}), DType::kE2M1), e8m0({1, 1}, {127})}, halves})[0]
          .dtype(),
      DType::kF16);
}

TEST(Integer, EveryCodeTypeGoesThereAndBack) {
  for (const DType type :
       {DType::kI8, DType::kU8, DType::kI16, DType::kU16, DType::kI4, DType::kU4, DType::kI2, DType::kU2,
        DType::kE4M3FN, DType::kE4M3FNUZ, DType::kE5M2, DType::kE5M2FNUZ, DType::kE2M1}) {
    const Attributes attrs{{"output_dtype", static_cast<std::int64_t>(type)}};
    const Tensor x = of({5}, {0, 1, 0.5F, 1, 0});  // of every format: steps of 0.5
    const Tensor q = check_case({"QuantizeLinear", {x, of({}, {0.5F})}, attrs})[0];
    EXPECT_EQ(q.dtype(), type);
    const Tensor limited = type == DType::kI2 ? of({5}, {0, 0.5F, 0.5F, 0.5F, 0}) : x;  // int2 ends at 1
    expect_close(check_case({"DequantizeLinear", {q, of({}, {0.5F})}})[0], limited, 0, 0, name(type));
  }
}

}  // namespace
}  // namespace pare::testing
