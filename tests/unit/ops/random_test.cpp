// Random operators: the same bits by the seed, shapes, and moments within bounds that follow from the number
// of draws (5 standard deviations).
#include "engine/ops/elementwise/random.h"

#include "tests/unit/ops/op_case.h"

namespace pare::testing {
namespace {

constexpr std::int64_t kDraws = 200'000;

Attributes seeded(float seed, Attributes more = {}) {
  more["seed"] = seed;
  return more;
}

struct Sums {
  double mean = 0, variance = 0;
};

Sums moments_of(const Tensor& t) {
  Sums s;
  const auto n = static_cast<double>(t.size());
  for (std::int64_t i = 0; i < t.size(); ++i) s.mean += element(t, i) / n;
  for (std::int64_t i = 0; i < t.size(); ++i) s.variance += std::pow(element(t, i) - s.mean, 2) / n;
  return s;
}

TEST(Random, UniformHasItsMoments) {
  const Attributes attrs =
      seeded(3, {{"shape", std::vector<std::int64_t>{kDraws}}, {"low", -1.0F}, {"high", 3.0F}});
  const Tensor y = check_case({"RandomUniform", {}, attrs})[0];
  const Sums s = moments_of(y);
  const double variance = 16.0 / 12;  // (high - low)^2 / 12; that of the variance: E d^4 - v^2 = v^2 * 0.8
  EXPECT_NEAR(s.mean, 1, 5 * std::sqrt(variance / kDraws));
  EXPECT_NEAR(s.variance, variance, 5 * variance * std::sqrt(0.8 / kDraws));
  for (std::int64_t i = 0; i < kDraws; ++i) ASSERT_TRUE(y.as<float>()[i] >= -1 && y.as<float>()[i] <= 3);
}

TEST(Random, NormalHasItsMoments) {
  const Attributes attrs = seeded(3, {{"mean", 2.0F}, {"scale", 0.5F}});
  for (const DType type : {DType::kF32, DType::kF64}) {
    const Tensor y = check_case({"RandomNormalLike", {to_type(floats({kDraws}), type)}, attrs})[0];
    EXPECT_EQ(y.dtype(), type);
    const Sums s = moments_of(y);
    EXPECT_NEAR(s.mean, 2, 5 * 0.5 / std::sqrt(kDraws));
    EXPECT_NEAR(s.variance, 0.25, 5 * 0.25 * std::sqrt(2.0 / kDraws));
  }
}

TEST(Random, SeedsDecideTheBits) {
  const OpCase one{"RandomNormalLike", {floats({100})}, seeded(1)},
      two{"RandomNormalLike", {floats({100})}, seeded(2)};
  EXPECT_TRUE(equal_bytes(check_case(one)[0], check_case(one)[0]));
  EXPECT_FALSE(equal_bytes(check_case(one)[0], check_case(two)[0]));
  EXPECT_EQ(uniform_draw(1, 0), uniform_draw(1, 0));
  EXPECT_NE(uniform_draw(1, 0), uniform_draw(1, 1));
  EXPECT_NE(uniform_draw(1, 0), uniform_draw(2, 0));
}

TEST(Random, LikeTakesShapeAndTypeOfItsInputUnlessTold) {
  const Tensor y = check_case({"RandomUniformLike", {to_type(floats({2, 0, 3}), DType::kF16)}, seeded(1)})[0];
  EXPECT_EQ(y.dims(), (Dims{2, 0, 3}));
  EXPECT_EQ(y.dtype(), DType::kF16);
  const Attributes doubles = seeded(1, {{"dtype", std::int64_t{11}}});
  EXPECT_EQ(check_case({"RandomUniformLike", {counting(DType::kI32, {4})}, doubles})[0].dtype(), DType::kF64);
}

TEST(Random, BernoulliDrawsEachElementWithItsChance) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor y = check_case({"Bernoulli", {of({4}, {0, 1, nan, 2})}, seeded(7)})[0];
  EXPECT_TRUE(equal_bytes(y, of({4}, {0, 1, 0, 1})));
  const Tensor many = check_case({"Bernoulli", {of({1}, {0.25F})}, seeded(7)})[0];
  EXPECT_EQ(many.dims(), (Dims{1}));
  Tensor p = Tensor::allocate(DType::kF32, {kDraws});
  std::fill_n(p.mut<float>(), kDraws, 0.25F);
  EXPECT_NEAR(moments_of(check_case({"Bernoulli", {p}, seeded(7)})[0]).mean, 0.25,
              5 * std::sqrt(0.1875 / kDraws));
}

TEST(Random, MultinomialFollowsTheScores) {
  const float never = -std::numeric_limits<float>::infinity();
  const Attributes attrs = seeded(5, {{"sample_size", kDraws}});
  const Tensor y =
      check_case({"Multinomial", {of({2, 3}, {0, never, std::log(3.0F), never, 8, never})}, attrs})[0];
  ASSERT_EQ(y.dims(), (Dims{2, kDraws}));
  ASSERT_EQ(y.dtype(), DType::kI32);
  double thirds = 0;
  for (std::int64_t i = 0; i < kDraws; ++i) {
    ASSERT_NE(y.as<std::int32_t>()[i], 1);
    thirds += y.as<std::int32_t>()[i] == 2 ? 1.0 / kDraws : 0;
    ASSERT_EQ(y.as<std::int32_t>()[kDraws + i], 1);
  }
  EXPECT_NEAR(thirds, 0.75, 5 * std::sqrt(0.1875 / kDraws));
}

TEST(Random, DropoutKeepsTheMean) {
  Tensor ones = Tensor::allocate(DType::kF32, {kDraws});
  std::fill_n(ones.mut<float>(), kDraws, 1.0F);
  const Tensor training = to_type(of({}, {1}), DType::kBool);
  OpCase c{"Dropout", {ones, Tensor::scalar(0.75F), training}, seeded(11), 2};
  const std::vector<Tensor> got = check_case(c);
  EXPECT_NEAR(moments_of(got[0]).mean, 1, 5 * std::sqrt(3.0 / kDraws));  // variance ratio / (1 - ratio)
  for (std::int64_t i = 0; i < kDraws; ++i) {
    const bool kept = got[1].as<std::uint8_t>()[i] != 0;
    ASSERT_EQ(got[0].as<float>()[i], kept ? 4.0F : 0.0F);
  }
  c.in[2] = to_type(of({}, {0}), DType::kBool);
  EXPECT_TRUE(equal_bytes(check_case(c)[0], ones));
  c.in[1] = Tensor::scalar(1.0F);
  c.in[2] = training;
  const Kernel* const kernel = cpu_registry().candidates("", "Dropout", Backend::kCpu).back();
  EXPECT_THROW(run_case(*kernel, c, 1), Error);
}

}  // namespace
}  // namespace pare::testing
