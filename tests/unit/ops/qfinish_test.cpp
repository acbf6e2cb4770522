// The finish of integer sums against the formula of qfinish.h written out, bit for bit in every class.
#include "engine/ops/integer/qfinish.h"

#include <bit>
#include <cmath>
#include <limits>

#include "engine/numeric/quantize.h"
#include "tests/unit/ops/quant_calls.h"

namespace pare {
namespace {

struct Case {
  const char* what;
  float lo, hi;    // of the clip
  DType residual;  // kUndefined: none
  bool bias;
};

constexpr float kInf = std::numeric_limits<float>::infinity();
const Case kCases[] = {
    {"plain", -kInf, kInf, DType::kUndefined, false}, {"bias_relu", 0, kInf, DType::kUndefined, true},
    {"clip_residual", -1.5f, 6, DType::kF32, true},   {"residual_s8", -kInf, kInf, DType::kI8, true},
    {"relu_residual_u8", 0, kInf, DType::kU8, false},
};

// Rounds every step to float through volatile: what the compiler may not fuse.
float step(float value) {
  const volatile float rounded = value;
  return rounded;
}

using FinishFunction = void (*)(const QFinish&, const std::int32_t*, std::int64_t, std::int64_t, int,
                                std::int64_t, std::int64_t);

class QFinishCases : public testing::TestWithParam<Case> {
 protected:
  static constexpr std::int64_t kColumns = 53, kPadded = 64;
  static constexpr int kRows = 5;

  void SetUp() override {
    std::mt19937 rng(3);
    acc_.resize(kRows * kPadded);
    for (std::int32_t& a : acc_) a = static_cast<std::int32_t>(rng()) >> (rng() % 28);
    acc_[0] = std::numeric_limits<std::int32_t>::max(), acc_[1] = std::numeric_limits<std::int32_t>::min();
    scale_ = test::random_floats({kPadded}, 1e-4f, 2e-3f, rng);
    bias_ = test::random_floats({kPadded}, -2, 2, rng);
    if (GetParam().residual == DType::kF32)
      residual_ = test::random_floats({kRows, kColumns}, -3, 3, rng);
    else if (GetParam().residual != DType::kUndefined)
      residual_ = test::random_codes(GetParam().residual, {kRows, kColumns}, rng);
    finish_.scale = scale_.as<float>();
    finish_.bias = GetParam().bias ? bias_.as<float>() : nullptr;
    finish_.activation.lo = GetParam().lo, finish_.activation.hi = GetParam().hi;
    finish_.y_stride = finish_.residual_stride = kColumns;
    if (!residual_.empty()) finish_.residual = residual_.data();
    finish_.residual_type = residual_.empty() ? DType::kF32 : residual_.dtype();
    finish_.residual_scale = 0.037f, finish_.residual_zero = GetParam().residual == DType::kU8 ? 100 : -3;
  }

  float expected(int row, std::int64_t c) const {
    float v =
        step(static_cast<float>(acc_[static_cast<std::size_t>(row * kPadded + c)]) * scale_.as<float>()[c]);
    if (finish_.bias != nullptr) v = step(v + bias_.as<float>()[c]);
    if (finish_.residual != nullptr) {
      const std::int64_t at = row * kColumns + c;
      float r = 0;
      if (residual_.dtype() == DType::kF32) {
        r = residual_.as<float>()[at];
      } else {
        const int code = residual_.dtype() == DType::kI8 ? residual_.as<std::int8_t>()[at]
                                                         : residual_.as<std::uint8_t>()[at];
        r = step(static_cast<float>(code - finish_.residual_zero) * finish_.residual_scale);
      }
      v = step(v + r);
    }
    v = v < GetParam().lo ? GetParam().lo : v;
    v = v > GetParam().hi ? GetParam().hi : v;
    return v;
  }

  std::vector<std::int32_t> acc_;
  Tensor scale_, bias_, residual_;
  QFinish finish_;
};

void for_each_class(const std::function<void(FinishFunction)>& body) {
  test::EachIsa each;
  each([&] { body(PARE_SIMD_PICK(q_finish)); });
}

TEST_P(QFinishCases, Float) {
  for_each_class([&](FinishFunction run) {
    std::vector<float> y(kRows * kColumns + 16, -77.0f);
    finish_.y = y.data();
    run(finish_, acc_.data(), kPadded, 0, kRows, 0, kColumns);
    for (int r = 0; r < kRows; ++r)
      for (std::int64_t c = 0; c < kColumns; ++c)
        ASSERT_EQ(std::bit_cast<std::uint32_t>(y[static_cast<std::size_t>(r * kColumns + c)]),
                  std::bit_cast<std::uint32_t>(expected(r, c)))
            << r << ", " << c;
    EXPECT_EQ(y[kRows * kColumns], -77.0f);
  });
}

// A quantized output has the codes that QuantizeLinear gives the float output.
TEST_P(QFinishCases, QuantizedEqualsQuantizeLinear) {
  for (const DType type : {DType::kI8, DType::kU8}) {
    for (const float y_scale : {0.03f, 1e-6f, 0.0f}) {
      const std::int32_t zero = type == DType::kI8 ? -7 : 131;
      std::vector<float> v;
      for (int r = 0; r < kRows; ++r)
        for (std::int64_t c = 0; c < kColumns; ++c) v.push_back(expected(r, c));
      std::vector<std::uint8_t> want(v.size());
      quantize(v.data(), ScaleLayout::per_tensor(static_cast<std::int64_t>(v.size())), &y_scale, &zero,
               {type}, want.data());
      for_each_class([&](FinishFunction run) {
        std::vector<std::uint8_t> y(v.size() + 16, 0xA5);
        finish_.y = y.data();
        finish_.y_type = type, finish_.y_scale = y_scale, finish_.y_zero = zero;
        run(finish_, acc_.data(), kPadded, 0, kRows, 0, kColumns);
        EXPECT_EQ(std::vector<std::uint8_t>(y.begin(), y.end() - 16), want) << name(type) << " " << y_scale;
        EXPECT_EQ(y[v.size()], 0xA5);
      });
    }
  }
}

// The activations that are no exact arithmetic: the same bits in every class, and near the real function.
// vector_math_test.cpp bounds their errors in ulps; 1e-6 is twice the largest of them at these sizes.
// Quotients at and beside every middle between two codes, where a product with 1 / scale may round the other
// way: each float within 40 of them in the last place.
TEST(QFinishRounding, MiddlesRoundAsDivisionDoes) {
  for (const float y_scale : {0.1f, 0.043f, 3.7e-5f, 11.3f, -0.02f, 0x1.fffffep-101f}) {
    std::vector<std::int32_t> acc;
    std::vector<float> scale;
    for (int code = -129; code < 129; ++code) {
      float v = (static_cast<float>(code) + 0.5f) * y_scale;
      for (int i = 0; i < 40; ++i) v = std::nextafter(v, -1e30f);
      for (int i = 0; i < 80; ++i, v = std::nextafter(v, 1e30f)) acc.push_back(1), scale.push_back(v);
    }
    const auto n = static_cast<std::int64_t>(acc.size());
    std::vector<std::uint8_t> want(acc.size()), got(acc.size());
    const std::int32_t zero = 5;
    quantize(scale.data(), ScaleLayout::per_tensor(n), &y_scale, &zero, {DType::kI8}, want.data());
    QFinish f;
    f.scale = scale.data();
    f.y = got.data();
    f.y_type = DType::kI8, f.y_scale = y_scale, f.y_zero = zero;
    for_each_class([&](FinishFunction run) {
      run(f, acc.data(), 0, 0, 1, 0, n);
      EXPECT_EQ(got, want) << y_scale;
    });
  }
}

TEST(QFinishActivations, AgreeInAllClasses) {
  std::vector<std::int32_t> acc(64);
  for (int i = 0; i < 64; ++i) acc[static_cast<std::size_t>(i)] = i * 25 - 800;
  const std::vector<float> scale(64, 0.01f);
  const struct {
    Activation::Kind kind;
    double (*real)(double);
  } kActivations[] = {
      {Activation::Kind::kHardSwish, [](double x) { return x * std::fmin(1, std::fmax(0, x / 6 + 0.5)); }},
      {Activation::Kind::kHardSigmoid, [](double x) { return std::fmin(1, std::fmax(0, 0.2 * x + 0.5)); }},
      {Activation::Kind::kSigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
      {Activation::Kind::kSilu, [](double x) { return x / (1 + std::exp(-x)); }},
      {Activation::Kind::kTanh, [](double x) { return std::tanh(x); }},
      {Activation::Kind::kGelu, [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }},
  };
  for (const auto& a : kActivations) {
    QFinish f;
    f.scale = scale.data();
    f.activation.kind = a.kind;
    f.activation.alpha = 0.2f, f.activation.beta = 0.5f;
    std::vector<float> first;
    for_each_class([&](FinishFunction run) {
      std::vector<float> y(64);
      f.y = y.data();
      run(f, acc.data(), 0, 0, 1, 0, 64);
      for (std::size_t i = 0; i < 64; ++i) {
        const double x = static_cast<double>(static_cast<float>(acc[i]) * 0.01f);
        EXPECT_NEAR(y[i], a.real(x), 1e-6 * std::fmax(1, std::fabs(x)));
      }
      if (first.empty()) first = y;
      EXPECT_EQ(std::memcmp(first.data(), y.data(), 64 * sizeof(float)), 0);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, QFinishCases, testing::ValuesIn(kCases),
                         [](const auto& p) { return std::string(p.param.what); });

}  // namespace
}  // namespace pare
