// Elementwise work on codes: every kernel against the formula loops, bit for bit, in every instruction class.
#include "engine/ops/integer/qcodes.h"

#include "tests/unit/ops/quant_calls.h"

namespace pare {
namespace {

using test::Call;

void compare(const Call& call) {
  const auto kernels = cpu_registry().candidates("pare", call.node.op, Backend::kCpu);
  ASSERT_GE(kernels.size(), 2u);
  const std::vector<std::uint8_t> want = call.run(*kernels.back());
  test::EachIsa each;
  each([&] {
    for (const Kernel* kernel : kernels)
      for (const int threads : {1, 3}) EXPECT_EQ(call.run(*kernel, threads), want) << kernel->name;
  });
}

TEST(QAdd, EveryKernelMatchesReference) {
  std::mt19937 rng(12);
  const DType types[] = {DType::kI8, DType::kU8};
  for (const char* activation : {"", "Relu", "Clip"}) {
    for (const Dims& dims : {Dims{}, Dims{3, 7}, Dims{0, 4}, Dims{5, 9, 11, 13}, Dims{70001}}) {
      Call call;
      call.node.domain = "pare";
      call.node.op = "QAdd";
      if (activation[0] != 0) call.node.attrs["activation"] = std::string(activation);
      call.node.attrs["clip_min"] = -0.3f;
      call.node.attrs["clip_max"] = 1.7f;
      const DType a = types[rng() % 2], b = types[rng() % 2], y = types[rng() % 2];
      call.in = {test::random_codes(a, dims, rng),
                 Tensor::scalar(0.017f),
                 test::code_tensor(a, 5),
                 test::random_codes(b, dims, rng),
                 Tensor::scalar(0.031f),
                 {},
                 Tensor::scalar(0.02f),
                 test::code_tensor(y, 9)};
      call.constant = {false, true, true, false, true, true, true, true};
      call.out_type = y;
      call.out_dims = dims;
      compare(call);
    }
  }
}

TEST(QLookup, EveryKernelReadsTheTable) {
  std::mt19937 rng(13);
  for (const std::int64_t n : {0, 1, 37, 100003}) {
    Call call;
    call.node.domain = "pare";
    call.node.op = "QLookup";
    call.in = {test::random_codes(DType::kI8, {n}, rng), test::random_codes(DType::kU8, {256}, rng)};
    call.constant = {false, true};
    call.out_type = DType::kU8;
    call.out_dims = {n};
    compare(call);
    const std::vector<std::uint8_t> y =
        call.run(*cpu_registry().candidates("pare", "QLookup", Backend::kCpu)[0]);
    for (std::int64_t i = 0; i < n; ++i)
      ASSERT_EQ(y[static_cast<std::size_t>(i)],
                call.in[1].as<std::uint8_t>()[call.in[0].as<std::uint8_t>()[i]]);
  }
}

}  // namespace
}  // namespace pare
