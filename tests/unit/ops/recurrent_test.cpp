// The packed kernels of RNN, GRU and LSTM, of Attention, and the transposed convolutions, against their plain
// ones.
#include "tests/unit/ops/op_case.h"

namespace pare::testing {
namespace {

using Ints = std::vector<std::int64_t>;

Attribute number(std::int64_t v) { return v; }
Attribute word(const char* text) { return std::string(text); }

OpCase recurrent(const char* op, std::int64_t gates, std::int64_t directions, bool batch_first,
                 std::int64_t seq, std::int64_t batch, std::int64_t in, std::int64_t hidden) {
  const std::int64_t rows = gates * hidden;
  const Dims state = batch_first ? Dims{batch, directions, hidden} : Dims{directions, batch, hidden};
  OpCase c;
  c.op = op;
  c.in = {floats(batch_first ? Dims{batch, seq, in} : Dims{seq, batch, in}),
          floats({directions, rows, in}, 2),
          floats({directions, rows, hidden}, 3, -0.3F, 0.3F),
          floats({directions, 2 * rows}, 4),
          Tensor(),
          floats(state, 5)};
  c.attrs = {{"hidden_size", hidden}, {"layout", number(batch_first ? 1 : 0)}};
  if (directions == 2) c.attrs["direction"] = word("bidirectional");
  c.outputs = std::string(op) == "LSTM" ? 3 : 2;
  if (c.outputs == 3) c.in.push_back(floats(state, 6));
  c.constants = true;
  // Sums of up to 40 products below 1 in float32, 9 steps, each of which passes on at most the error before
  // it times the sum of a row of R (40 * 0.15 here, but gates below 1/4 and tanh's slope damp it): measured
  // 3e-6.
  c.absolute = 2e-5;
  return c;
}

TEST(Recurrent, PackedKernelsInEveryForm) {
  for (const auto& [op, gates] : {std::pair{"LSTM", 4}, std::pair{"GRU", 3}, std::pair{"RNN", 1}})
    for (const std::int64_t directions : {1, 2})
      for (const bool batch_first : {false, true})
        for (const std::int64_t batch : {1, 5}) {
          OpCase c = recurrent(op, gates, directions, batch_first, 9, batch, 7, 19);
          check_case(c);
          if (std::string(op) == "GRU") {
            c.attrs["linear_before_reset"] = number(1);
            check_case(c);
          }
          if (directions == 1) {
            c.attrs["direction"] = word("reverse");
            check_case(c);
          }
        }
  OpCase bare = recurrent("LSTM", 4, 1, false, 3, 2, 4, 40);
  bare.in.resize(3);  // no bias, no states
  check_case(bare);
  check_case(recurrent("GRU", 3, 1, false, 0, 2, 4, 8));  // no steps: the initial state comes out
  OpCase relu = recurrent("RNN", 1, 1, false, 4, 2, 4, 8);
  relu.attrs["activations"] = std::vector<std::string>{"Relu"};
  check_case(relu);
  OpCase clipped = recurrent("LSTM", 4, 1, false, 4, 2, 4, 8);  // the plain kernel alone
  clipped.attrs["clip"] = 0.1F;
  check_case(clipped);
}

TEST(Recurrent, OneSampleDoesNotSeeTheOthers) {
  const OpCase all = recurrent("LSTM", 4, 1, true, 6, 5, 7, 19);
  const std::vector<Tensor> want = check_case(all);
  for (const Kernel* kernel : cpu_registry().candidates("", "LSTM", Backend::kCpu)) {
    const OpRun together = run_case(*kernel, all, 3);
    for (std::int64_t b = 0; b < 5; ++b) {
      OpCase one = all;
      for (const std::size_t i : {std::size_t{0}, std::size_t{5}, std::size_t{6}}) {
        Dims dims = all.in[i].dims();
        const std::int64_t each = all.in[i].size() / 5;
        dims[0] = 1;
        one.in[i] = Tensor::copy_of(DType::kF32, dims, all.in[i].as<float>() + b * each,
                                    static_cast<std::size_t>(each) * sizeof(float));
      }
      const OpRun alone = run_case(*kernel, one, 1);
      const std::int64_t each = want[0].size() / 5;
      EXPECT_EQ(std::memcmp(alone.out[0].data(), together.out[0].as<float>() + b * each,
                            static_cast<std::size_t>(each) * sizeof(float)),
                0)
          << kernel->name;
    }
  }
}

TEST(Recurrent, OtherFloatTypes) {
  for (const DType type : {DType::kF16, DType::kBF16, DType::kF64}) {
    OpCase c = recurrent("LSTM", 4, 1, false, 2, 2, 3, 4);
    for (Tensor& t : c.in)
      if (!t.empty()) t = to_type(t, type);
    check_case(c);
  }
}

TEST(ConvTransposed, EveryFormAgainstThePlainKernel) {
  struct Form {
    Dims x, w;
    Attributes attrs;
  };
  const Form forms[] = {
      {{2, 5, 4, 3}, {5, 7, 2, 2}, {{"strides", Ints{2, 2}}}},  // one tap an output
      {{1, 24, 9, 8}, {24, 1, 2, 2}, {{"strides", Ints{2, 2}}}},
      {{1, 3, 5, 4},
       {3, 4, 3, 3},
       {{"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}, {"output_padding", Ints{1, 1}}}},
      {{1, 3, 5, 4}, {3, 4, 4, 4}, {{"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}}},
      {{1, 3, 5, 4},
       {3, 4, 3, 2},
       {{"strides", Ints{3, 2}}, {"dilations", Ints{2, 3}}, {"pads", Ints{0, 2, 1, 0}}}},
      {{1, 3, 2, 2},
       {3, 2, 1, 1},
       {{"strides", Ints{3, 3}}, {"output_padding", Ints{2, 1}}}},  // outputs of bias alone
      {{2, 6, 4, 5}, {6, 2, 3, 3}, {{"group", number(3)}, {"strides", Ints{1, 2}}}},
      {{1, 19, 4, 5},
       {19, 1, 4, 4},
       {{"group", number(19)}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}}},
      {{1, 3, 5, 4}, {3, 4, 3, 3}, {{"auto_pad", word("SAME_UPPER")}, {"strides", Ints{2, 3}}}},
      {{1, 3, 5, 4}, {3, 4, 3, 3}, {{"output_shape", Ints{9, 9}}, {"strides", Ints{2, 2}}}},
      {{1, 3, 6}, {3, 4, 5}, {{"strides", Ints{2}}}},  // one axis
      {{1, 2, 3, 2, 4}, {2, 3, 2, 2, 2}, {{"strides", Ints{2, 1, 2}}}},
      {{0, 3, 5, 4}, {3, 4, 3, 3}, {}},
  };
  for (const Form& form : forms) {
    const std::int64_t m =
        form.w[1] * (form.attrs.count("group") != 0 ? std::get<std::int64_t>(form.attrs.at("group")) : 1);
    // At most 24 * 16 products below 1.
    OpCase c{"ConvTranspose", {floats(form.x), floats(form.w, 2), floats({m}, 3)}, form.attrs, 1, 0,
             400 * 0x1p-22};
    c.constants = true;
    check_case(c);
    c.in.pop_back();
    check_case(c);
    for (Tensor& t : c.in) t = to_type(t, DType::kF16);
    check_case(c);
  }
}

TEST(ConvTransposed, ActivationsOfTheLoweredOne) {
  for (const Ints& strides : {Ints{2, 2}, Ints{1, 1}})
    for (const char* activation : {"", "Relu", "Sigmoid", "HardSwish"}) {
      OpCase c{"ConvTranspose",
               {floats({2, 3, 4, 5}), floats({5, 7, 2, 2}, 2), floats({7}, 3)},
               {{"strides", strides}, {"activation", word(activation)}},
               1,
               0,
               40 * 0x1p-22};
      c.domain = "pare";
      c.constants = true;
      check_case(c);
      c.in[1] = floats({5, 1, 2, 3}, 2);
      c.in[2] = floats({5}, 3);
      c.attrs["group"] = number(5);
      check_case(c);
    }
}

TEST(Attention, PackedKernelInEveryForm) {
  const auto with = [](Attributes attrs, const char* key, Attribute value) {
    attrs[key] = std::move(value);
    return attrs;
  };
  const auto mask = [](Dims dims) {  // hides about a third
    Tensor t = Tensor::allocate(DType::kBool, dims);
    for (std::int64_t i = 0; i < t.size(); ++i) t.mut<std::uint8_t>()[i] = i % 7 % 3 == 1 ? 0 : 1;
    return t;
  };
  // Scores of sizes below 9: exp has relative errors of some units of 2^-20; values below 1.
  const double bound = 2e-5;
  const auto check = [&](std::vector<Tensor> in, Attributes attrs, int outputs = 4) {
    OpCase c{"Attention", std::move(in), std::move(attrs), outputs, 0, bound};
    check_case(c);
    for (const std::size_t i : {0, 1, 2, 3, 4, 5})
      if (i < c.in.size() && !c.in[i].empty() && c.in[i].dtype() == DType::kF32)
        c.in[i] = to_type(c.in[i], DType::kBF16);
    c.relative = 0x1p-7;  // rounded once, of values that agree to 2e-5
    c.absolute = 1e-4;
    check_case(c);
  };
  const Tensor q = floats({2, 6, 37, 9}), k = floats({2, 2, 50, 9}, 2), v = floats({2, 2, 50, 5}, 3);
  const Tensor past_k = floats({2, 2, 11, 9}, 4), past_v = floats({2, 2, 11, 5}, 5);
  const Tensor lengths = ints({50, 3});
  for (const std::int64_t causal : {0, 1})
    for (const std::int64_t mode : {0, 1, 2, 3}) {
      const Attributes attrs = {{"is_causal", causal}, {"qk_matmul_output_mode", mode}};
      check({q, k, v}, attrs);
      check({q, k, v, floats({37, 50}, 6)}, with(attrs, "softcap", 2.0F));
      check({q, k, v, mask({2, 1, 37, 61}), past_k, past_v}, attrs);
      check({q, k, v, mask({1, 6, 37, 40}), Tensor(), Tensor(), lengths}, with(attrs, "scale", 0.5F));
    }
  const Attributes flat = {{"q_num_heads", number(6)}, {"kv_num_heads", number(2)}};
  check({floats({2, 37, 54}), floats({2, 50, 18}, 2), floats({2, 50, 10}, 3)}, flat);
  check({floats({2, 37, 54}), floats({2, 50, 18}, 2), floats({2, 50, 10}, 3), Tensor(), past_k, past_v},
        flat);
  check({floats({1, 2, 1, 64}), floats({1, 2, 700, 64}, 2), floats({1, 2, 700, 64}, 3)}, {}, 1);  // decoding
  check({floats({1, 1, 300, 8}), floats({1, 1, 300, 8}, 2), floats({1, 1, 300, 8}, 3)},
        {{"is_causal", number(1)}}, 1);
  // Masked throughout: NaN, in every kernel.
  Tensor nothing = mask({37, 50});
  std::memset(nothing.mut<std::uint8_t>(), 0, 37 * 50);
  check({q, k, v, nothing}, {}, 1);
  for (const std::vector<Tensor>& bad :
       {std::vector<Tensor>{q, floats({2, 4, 50, 9}), floats({2, 4, 50, 5})},
        std::vector<Tensor>{q, floats({2, 2, 50, 8}), v}, std::vector<Tensor>{q, k, floats({2, 2, 51, 5})},
        std::vector<Tensor>{q, k, v, floats({37, 51})}, std::vector<Tensor>{q, k, v, floats({3, 1, 1, 50})},
        std::vector<Tensor>{q, k, v, Tensor(), past_k, floats({2, 2, 12, 5})},
        std::vector<Tensor>{q, k, v, Tensor(), Tensor(), Tensor(), ints({1})}})
    for (const Kernel* kernel : cpu_registry().candidates("", "Attention", Backend::kCpu))
      EXPECT_THROW(run_case(*kernel, {"Attention", bad}, 1), Error) << kernel->name;
}

}  // namespace
}  // namespace pare::testing
