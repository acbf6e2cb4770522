// Every kernel of pare.QConv and pare.QMatMul against the reference loops, in every instruction class, bit
// for bit: sums are exact and the finish is one formula.
#include "engine/ops/integer/qlinear.h"

#include "tests/unit/ops/quant_calls.h"

namespace pare {
namespace {

using test::Call;

struct Types {
  DType x, w;
  std::int32_t zx, zw;
};
const Types kTypes[] = {
    {DType::kI8, DType::kI8, 0, 0}, {DType::kU8, DType::kI8, 113, 0}, {DType::kU8, DType::kU8, 3, 140}};

// Which of the optional inputs a call has.
struct Finish {
  bool bias, per_channel;
  DType y, residual;
  const char* activation;
};
const Finish kFinishes[] = {{false, false, DType::kF32, DType::kUndefined, ""},
                            {true, true, DType::kI8, DType::kUndefined, "Relu"},
                            {true, true, DType::kU8, DType::kI8, "HardSwish"},
                            {true, false, DType::kF32, DType::kF32, "Clip"}};

void fill(Call& call, const Types& t, const Finish& f, std::int64_t columns, std::mt19937& rng) {
  call.in.resize(kQSlots);
  call.constant.assign(kQSlots, true);
  call.constant[kQX] = call.constant[kQResidual] = false;
  call.in[kQXScale] = Tensor::scalar(0.021f);
  call.in[kQXZero] = test::code_tensor(t.x, t.zx);
  call.in[kQWScale] =
      f.per_channel ? test::random_floats({columns}, 1e-3f, 2e-2f, rng) : Tensor::scalar(0.004f);
  if (t.zw != 0) call.in[kQWZero] = test::code_tensor(t.w, t.zw);
  if (f.bias) call.in[kQBias] = test::random_floats({columns}, -1, 1, rng);
  call.out_type = f.y;
  if (f.y != DType::kF32) {
    call.in[kQYScale] = Tensor::scalar(0.043f);
    call.in[kQYZero] = test::code_tensor(f.y, f.y == DType::kI8 ? -4 : 120);
  }
  if (f.residual == DType::kF32) call.in[kQResidual] = test::random_floats(call.out_dims, -2, 2, rng);
  if (f.residual == DType::kI8) {
    call.in[kQResidual] = test::random_codes(DType::kI8, call.out_dims, rng);
    call.in[kQResidualScale] = Tensor::scalar(0.05f);
    call.in[kQResidualZero] = test::code_tensor(DType::kI8, 9);
  }
  if (f.activation[0] != 0) call.node.attrs["activation"] = std::string(f.activation);
  if (std::string(f.activation) == "Clip") {
    call.node.attrs["clip_min"] = -0.5f;
    call.node.attrs["clip_max"] = 1.25f;
  }
}

// Kernels that take the call give the reference's bytes, on one thread and on several.
void compare(const Call& call, int* compared) {
  const auto kernels = cpu_registry().candidates("pare", call.node.op, Backend::kCpu);
  ASSERT_GE(kernels.size(), 2u);
  const std::vector<std::uint8_t> want = call.run(*kernels.back());
  test::EachIsa each;
  each([&] {
    for (const Kernel* kernel : kernels) {
      if (!call.why_not(*kernel).empty()) continue;
      SCOPED_TRACE(kernel->name);
      for (const int threads : {1, 3}) ASSERT_EQ(call.run(*kernel, threads), want);
      ++*compared;
    }
  });
}

struct ConvCase {
  const char* what;
  std::int64_t n, h, w, c, m, kh, kw, group;
  std::vector<std::int64_t> strides, dilations, pads;
};
const ConvCase kConvs[] = {
    {"first_layer", 2, 9, 8, 1, 16, 3, 3, 1, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {"dense_3x3", 2, 7, 7, 32, 40, 3, 3, 1, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {"dense_odd", 2, 5, 9, 19, 21, 3, 3, 1, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {"dense_no_pads", 1, 3, 4, 16, 70, 3, 3, 1, {1, 1}, {1, 1}, {0, 0, 0, 0}},
    {"dense_uneven_pads", 1, 2, 2, 33, 16, 3, 3, 1, {1, 1}, {1, 1}, {2, 1, 1, 3}},
    {"dense_many", 3, 6, 6, 32, 70, 3, 3, 1, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {"stride_2", 3, 8, 9, 20, 70, 3, 3, 1, {2, 2}, {1, 1}, {1, 1, 1, 1}},
    {"pointwise", 2, 5, 5, 64, 130, 1, 1, 1, {1, 1}, {1, 1}, {0, 0, 0, 0}},
    {"pointwise_odd", 1, 4, 3, 17, 5, 1, 1, 1, {1, 1}, {1, 1}, {0, 0, 0, 0}},
    {"pointwise_stride", 1, 8, 8, 12, 24, 1, 1, 1, {2, 2}, {1, 1}, {0, 0, 0, 0}},
    {"one_pixel", 3, 1, 1, 96, 24, 1, 1, 1, {1, 1}, {1, 1}, {0, 0, 0, 0}},
    {"dilated", 1, 11, 12, 6, 18, 3, 3, 1, {1, 1}, {2, 3}, {2, 3, 2, 3}},
    {"uneven_pads", 1, 6, 5, 7, 9, 4, 2, 1, {2, 1}, {1, 1}, {0, 1, 3, 0}},
    {"wider_than_x", 1, 2, 2, 5, 4, 5, 5, 1, {1, 1}, {1, 1}, {3, 4, 3, 4}},
    {"grouped", 2, 5, 6, 24, 36, 3, 3, 4, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {"multiplier", 1, 5, 5, 6, 12, 3, 3, 6, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {"depthwise", 2, 7, 9, 48, 48, 3, 3, 48, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {"depthwise_odd", 1, 6, 6, 21, 21, 5, 3, 21, {2, 1}, {1, 2}, {2, 2, 2, 2}},
    {"depthwise_even_taps", 1, 5, 5, 67, 67, 2, 2, 67, {1, 1}, {1, 1}, {0, 0, 1, 1}},
    {"empty_batch", 0, 5, 5, 8, 8, 3, 3, 1, {1, 1}, {1, 1}, {0, 0, 0, 0}},
};
void PrintTo(const ConvCase& c, std::ostream* out) { *out << c.what; }

Call conv_call(const ConvCase& c, const Types& t, const Finish& f, std::mt19937& rng) {
  Call call;
  call.node.domain = "pare";
  call.node.op = "QConv";
  call.node.attrs["strides"] = c.strides;
  call.node.attrs["dilations"] = c.dilations;
  call.node.attrs["pads"] = c.pads;
  call.node.attrs["group"] = c.group;
  const std::int64_t oh = (c.h + c.pads[0] + c.pads[2] - (c.kh - 1) * c.dilations[0] - 1) / c.strides[0] + 1;
  const std::int64_t ow = (c.w + c.pads[1] + c.pads[3] - (c.kw - 1) * c.dilations[1] - 1) / c.strides[1] + 1;
  call.out_dims = {c.n, oh, ow, c.m};
  fill(call, t, f, c.m, rng);
  call.in[kQX] = test::random_codes(t.x, {c.n, c.h, c.w, c.c}, rng);
  call.in[kQW] = test::random_codes(t.w, {c.m, c.c / c.group, c.kh, c.kw}, rng);
  return call;
}

// The same as a map of one line: rank 3 has the bytes of rank 4 with height 1.
TEST(QConv1d, IsAMapOfOneLine) {
  std::mt19937 rng(8);
  const ConvCase line = {"line", 2, 1, 23, 12, 20, 1, 5, 1, {1, 2}, {1, 3}, {0, 4, 0, 5}};
  Call flat = conv_call(line, kTypes[1], kFinishes[2], rng);
  const auto kernels = cpu_registry().candidates("pare", "QConv", Backend::kCpu);
  const std::vector<std::uint8_t> want = flat.run(*kernels.back());
  const auto without_axis = [](Dims dims, std::ptrdiff_t axis) {
    dims.erase(dims.begin() + axis);
    return dims;
  };
  flat.node.attrs["strides"] = std::vector<std::int64_t>{2};
  flat.node.attrs["dilations"] = std::vector<std::int64_t>{3};
  flat.node.attrs["pads"] = std::vector<std::int64_t>{4, 5};
  flat.in[kQX] = flat.in[kQX].reshaped(without_axis(flat.in[kQX].dims(), 1));
  flat.in[kQW] = flat.in[kQW].reshaped(without_axis(flat.in[kQW].dims(), 2));
  flat.out_dims = without_axis(flat.out_dims, 1);
  flat.in[kQResidual] = flat.in[kQResidual].reshaped(flat.out_dims);
  for (const Kernel* kernel : kernels) {
    if (!flat.why_not(*kernel).empty()) continue;
    EXPECT_EQ(flat.run(*kernel), want) << kernel->name;
  }
}

class QConvCases : public testing::TestWithParam<ConvCase> {};

TEST_P(QConvCases, EveryKernelMatchesReference) {
  std::mt19937 rng(5);
  int compared = 0;
  for (const Types& t : kTypes)
    for (const Finish& f : kFinishes) {
      compare(conv_call(GetParam(), t, f, rng), &compared);
      if (HasFatalFailure()) return;
    }
  EXPECT_GE(compared, 12);
}

INSTANTIATE_TEST_SUITE_P(Convs, QConvCases, testing::ValuesIn(kConvs),
                         [](const auto& p) { return std::string(p.param.what); });

struct MatMulCase {
  const char* what;
  Dims x, w, y;
  bool trans_b, constant;
};
const MatMulCase kMatMuls[] = {
    {"gemm", {7, 65}, {65, 10}, {7, 10}, false, true},
    {"gemm_trans", {1, 256}, {10, 256}, {1, 10}, true, true},
    {"tokens", {2, 50, 48}, {48, 100}, {2, 50, 100}, false, true},
    {"scores", {2, 3, 5, 33}, {2, 3, 33, 5}, {2, 3, 5, 5}, false, false},
    {"scores_trans", {2, 3, 5, 32}, {2, 3, 5, 32}, {2, 3, 5, 5}, true, false},
    {"broadcast", {3, 1, 4, 9}, {2, 9, 6}, {3, 2, 4, 6}, false, false},
    {"one_w_per_batch", {2, 4, 9}, {2, 9, 6}, {2, 4, 6}, false, true},
    {"x_is_shared", {4, 9}, {5, 9, 6}, {5, 4, 6}, false, false},
    {"no_rows", {0, 9}, {9, 6}, {0, 6}, false, true},
    {"no_products", {3, 0}, {0, 6}, {3, 6}, false, true},
};
void PrintTo(const MatMulCase& c, std::ostream* out) { *out << c.what; }

class QMatMulCases : public testing::TestWithParam<MatMulCase> {};

TEST_P(QMatMulCases, EveryKernelMatchesReference) {
  const MatMulCase& c = GetParam();
  std::mt19937 rng(6);
  int compared = 0;
  for (const Types& t : kTypes)
    for (const Finish& f : kFinishes) {
      Call call;
      call.node.domain = "pare";
      call.node.op = "QMatMul";
      if (c.trans_b) call.node.attrs["trans_b"] = std::int64_t{1};
      call.out_dims = c.y;
      fill(call, t, f, c.y.back(), rng);
      call.in[kQX] = test::random_codes(t.x, c.x, rng);
      call.in[kQW] = test::random_codes(t.w, c.w, rng);
      call.constant[kQW] = c.constant;
      compare(call, &compared);
      if (HasFatalFailure()) return;
    }
  EXPECT_GE(compared, 12);
}

INSTANTIATE_TEST_SUITE_P(MatMuls, QMatMulCases, testing::ValuesIn(kMatMuls),
                         [](const auto& p) { return std::string(p.param.what); });

TEST(QLinear, SaysWhyItDeclines) {
  std::mt19937 rng(1);
  const auto why = [&](auto&& change) {
    Call call = conv_call(kConvs[1], kTypes[0], kFinishes[1], rng);
    change(call);
    return call.why_not(*cpu_registry().candidates("pare", "QConv", Backend::kCpu).back());
  };
  EXPECT_EQ(why([](Call&) {}), "");
  EXPECT_EQ(why([](Call& c) { c.in[kQXScale] = {}; }), "the scale of x is not one constant float32");
  EXPECT_EQ(why([](Call& c) { c.constant[kQW] = false; }), "w is not a constant");
  EXPECT_EQ(why([](Call& c) { c.node.attrs["activation"] = std::string("Sine"); }),
            "unknown activation Sine");
  EXPECT_EQ(why([](Call& c) { c.out_dims[1] += 1; }),
            "y has not the shape that follows from x and the window");
  EXPECT_EQ(why([](Call& c) {
              c.in[kQX] = Tensor::allocate(DType::kI8, {1, 1, 1, 140000});
              c.in[kQW] = Tensor::allocate(DType::kI8, {40, 140000, 1, 1});
              c.node.attrs["pads"] = std::vector<std::int64_t>{0, 0, 0, 0};
              c.out_dims = {1, 1, 1, 40};
            }),
            "sums of 140000 products may leave int32 (at most 131071)");
}

}  // namespace
}  // namespace pare
