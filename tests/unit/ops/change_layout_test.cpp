// Layout changes of every kernel against the index formula, and there and back again.
#include "tests/unit/ops/quant_calls.h"

namespace pare {
namespace {

using test::Call;

Call layout_call(const char* op, const Tensor& in, Dims out) {
  Call call;
  call.node.domain = "pare";
  call.node.op = op;
  call.in = {in};
  call.out_type = in.dtype();
  call.out_dims = std::move(out);
  return call;
}

TEST(ChangeLayout, EveryKernelMovesEveryElement) {
  const Dims cases[] = {{2, 3, 5, 7}, {1, 1, 9, 4}, {3, 70, 1, 1}, {2, 65, 33, 2}, {0, 3, 4, 4}, {2, 5, 6}};
  for (const DType type : {DType::kU8, DType::kF16, DType::kF32, DType::kI64}) {
    const auto bytes = static_cast<std::size_t>(bits(type) / 8);
    for (const Dims& plain : cases) {
      const std::int64_t channels = plain[1], spatial = element_count({plain.begin() + 2, plain.end()});
      Dims last(plain);
      std::rotate(last.begin() + 1, last.begin() + 2, last.end());
      Tensor in = Tensor::allocate(type, plain);
      auto* p = in.mut<std::uint8_t>();
      for (std::int64_t i = 0; i < in.bytes(); ++i) p[i] = static_cast<std::uint8_t>(i * 37 + i / 256);
      std::vector<std::uint8_t> want(static_cast<std::size_t>(in.bytes()));
      for (std::int64_t n = 0; n < plain[0]; ++n)
        for (std::int64_t c = 0; c < channels; ++c)
          for (std::int64_t s = 0; s < spatial; ++s)
            std::memcpy(want.data() + static_cast<std::size_t>((n * spatial + s) * channels + c) * bytes,
                        p + static_cast<std::size_t>((n * channels + c) * spatial + s) * bytes, bytes);
      for (const Kernel* k : cpu_registry().candidates("pare", "ToChannelsLast", Backend::kCpu))
        EXPECT_EQ(layout_call("ToChannelsLast", in, last).run(*k), want) << k->name << to_string(plain);
      const Tensor moved = Tensor::copy_of(type, last, want.data(), want.size());
      for (const Kernel* k : cpu_registry().candidates("pare", "ToPlain", Backend::kCpu))
        EXPECT_EQ(layout_call("ToPlain", moved, plain).run(*k), std::vector<std::uint8_t>(p, p + in.bytes()))
            << k->name << to_string(plain);
    }
  }
}

}  // namespace
}  // namespace pare
