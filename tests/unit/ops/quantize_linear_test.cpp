// The kernels of QuantizeLinear, DequantizeLinear and pare.FakeQuant against the formula loops, bit for bit,
// in every instruction class; and FakeQuant against the two others.
#include "engine/ops/integer/quantize_linear.h"

#include <cmath>
#include <limits>

#include "engine/numeric/table.h"
#include "tests/unit/ops/quant_calls.h"

namespace pare {
namespace {

using test::Call;

struct Case {
  const char* what;
  Dims dims;
  std::int64_t axis, block;  // axis -100: per tensor
  DType code;
  bool zero_points;
};

const Case kCases[] = {
    {"s8_tensor", {3, 5, 7}, -100, 0, DType::kI8, true},
    {"s8_large", {70, 33, 31}, -100, 0, DType::kI8, false},
    {"u8_channel", {2, 19, 6, 5}, 1, 0, DType::kU8, true},
    {"s8_channel_large", {3, 64, 20, 20}, 1, 0, DType::kI8, true},
    {"s8_rows_large", {512, 130}, 0, 0, DType::kI8, false},
    {"s8_last_axis", {40, 1031}, -1, 0, DType::kI8, true},
    {"s4_blocks", {16, 70}, 1, 32, DType::kI4, false},
    {"u4_blocks_first", {64, 9}, 0, 16, DType::kU4, true},
    {"s4_tensor_large", {100, 1001}, -100, 0, DType::kI4, false},
    {"s8_blocks_large", {300, 256}, 1, 64, DType::kI8, false},
    {"u16_tensor", {9, 9}, -100, 0, DType::kU16, true},
    {"e4m3_channel", {4, 6, 5}, 1, 0, DType::kE4M3FN, false},
    {"e2m1_tensor", {5, 5}, -100, 0, DType::kE2M1, false},
    {"empty", {0, 4}, 1, 0, DType::kI8, true},
    {"scalar", {}, -100, 0, DType::kU8, true},
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.what; }

class QuantizeLinear : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& c = GetParam();
    std::mt19937 rng(9);
    x_ = test::random_floats(c.dims, -9, 9, rng);
    const float special[] = {NAN, INFINITY, -INFINITY, -0.0f, 1e30f, 0.25f, -0.75f, 1e-40f};
    for (std::int64_t i = 0; i < std::min<std::int64_t>(8, x_.size()); ++i)
      x_.mut<float>()[x_.size() - 1 - i] = special[i];
    Dims scale_dims;
    if (c.axis != -100) {
      const std::size_t axis = static_cast<std::size_t>(c.axis < 0 ? c.axis + std::ssize(c.dims) : c.axis);
      scale_dims = {c.dims[axis]};
      if (c.block > 0) {
        scale_dims = c.dims;
        scale_dims[axis] = (c.dims[axis] + c.block - 1) / c.block;
      }
    }
    scale_ = test::random_floats(scale_dims, 0.01f, 0.7f, rng);
    if (scale_.size() > 0) scale_.mut<float>()[0] = 0.5f;  // halves: ties
    if (!c.zero_points) return;
    const FormatInfo& format = format_info(c.code);
    std::vector<float> zeros(static_cast<std::size_t>(scale_.size()));
    for (float& z : zeros) z = static_cast<float>(static_cast<int>(rng() % 11) + (format.is_signed ? -5 : 0));
    zero_ = Tensor::allocate(c.code, scale_dims);
    format.encode(zeros.data(), zero_.mut<std::uint8_t>(), scale_.size());
  }

  Call call(const char* domain, const char* op, const Tensor& data, DType out) const {
    Call made;
    made.node.domain = domain;
    made.node.op = op;
    if (GetParam().axis != -100) made.node.attrs["axis"] = GetParam().axis;
    if (GetParam().block > 0) made.node.attrs["block_size"] = GetParam().block;
    made.node.attrs["code_dtype"] = static_cast<std::int64_t>(GetParam().code);
    made.in = {data, scale_, zero_};
    made.constant = {false, false, false};
    made.out_type = out;
    made.out_dims = GetParam().dims;
    return made;
  }

  // All kernels of the operator give this.
  std::vector<std::uint8_t> same_of_all(const Call& made) const {
    const auto kernels = cpu_registry().candidates(made.node.domain, made.node.op, Backend::kCpu);
    EXPECT_GE(kernels.size(), 2u);
    const std::vector<std::uint8_t> want = made.run(*kernels.back());
    test::EachIsa each;
    each([&] {
      for (const Kernel* kernel : kernels)
        for (const int threads : {1, 3}) EXPECT_EQ(made.run(*kernel, threads), want) << kernel->name;
    });
    return want;
  }

  Tensor x_, scale_, zero_;
};

TEST_P(QuantizeLinear, EveryKernelMatchesReference) {
  const Case& c = GetParam();
  const std::vector<std::uint8_t> codes = same_of_all(call("", "QuantizeLinear", x_, c.code));
  const Tensor code_tensor = Tensor::copy_of(c.code, c.dims, codes.data(), codes.size());
  const std::vector<std::uint8_t> back = same_of_all(call("", "DequantizeLinear", code_tensor, DType::kF32));
  const std::vector<std::uint8_t> fake = same_of_all(call("pare", "FakeQuant", x_, DType::kF32));
  EXPECT_EQ(fake, back);
}

INSTANTIATE_TEST_SUITE_P(Cases, QuantizeLinear, testing::ValuesIn(kCases),
                         [](const auto& p) { return std::string(p.param.what); });

// ONNX's own vectors (onnx/backend/test/case/node/quantizelinear.py).
TEST(QuantizeLinearVectors, Onnx) {
  Call made;
  made.node.op = "QuantizeLinear";
  made.in = {Tensor::from<float>(DType::kF32, {6}, {0, 2, 3, 1000, -254, -1000}), Tensor::scalar(2),
             test::code_tensor(DType::kU8, 128)};
  made.out_type = DType::kU8;
  made.out_dims = {6};
  for (const Kernel* kernel : cpu_registry().candidates("", "QuantizeLinear", Backend::kCpu))
    EXPECT_EQ(made.run(*kernel), (std::vector<std::uint8_t>{128, 129, 130, 255, 1, 0})) << kernel->name;
}

TEST(DequantizeLinear, BiasOfInt32) {
  Call made;
  made.node.op = "DequantizeLinear";
  made.node.attrs["axis"] = std::int64_t{0};
  made.in = {Tensor::from<std::int32_t>(DType::kI32, {3}, {7, -2000000000, 16777217}),
             Tensor::from<float>(DType::kF32, {3}, {0.5f, 2.0f, 1.0f})};
  made.out_dims = {3};
  for (const Kernel* kernel : cpu_registry().candidates("", "DequantizeLinear", Backend::kCpu)) {
    const auto bytes = made.run(*kernel);
    std::vector<float> y(3);
    std::memcpy(y.data(), bytes.data(), bytes.size());
    EXPECT_EQ(y, (std::vector<float>{3.5f, -4e9f, 16777216.0f})) << kernel->name;
  }
}

}  // namespace
}  // namespace pare
