// pare.CachedAttention: the bits of Attention over past and new keys, in every instruction class, and the
// plain reference within the error of float32 sums.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/ops/sequence/cached_attention.h"
#include "tests/unit/ops/kernel_run.h"

namespace pare {
namespace {

using testing::Argument;
using testing::kernel_named;
using testing::random_floats;
using testing::run_kernel;
using testing::same_bits;
using testing::WithIsa;

struct Case {
  const char* what;
  std::int64_t batch, seq, heads, kv_heads, size, past, blocks;
  Attributes attrs = {};
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.what; }

const Case kCases[] = {
    {"one token, groups of three", 1, 1, 9, 3, 64, 37, 3},
    {"the first token", 1, 1, 4, 2, 16, 0, 1},
    {"no room and no past", 1, 1, 2, 2, 8, 0, 0},
    {"a full cache", 2, 1, 6, 1, 64, 48, 3},
    {"an odd size", 1, 1, 5, 5, 10, 33, 4},
    {"a long past, a size of 96", 1, 1, 8, 4, 96, 300, 20},
    {"five heads of one key", 1, 1, 5, 1, 32, 17, 2},
    {"a window", 1, 1, 4, 2, 32, 40, 3, {{"window", std::int64_t{12}}}},
    {"a window wider than the past", 1, 1, 4, 2, 32, 9, 3, {{"window", std::int64_t{12}}}},
    {"a cap and a scale", 2, 1, 4, 2, 32, 21, 2, {{"softcap", 3.0f}, {"scale", 0.7f}}},
    {"several tokens", 2, 5, 4, 2, 32, 21, 2, {{"window", std::int64_t{7}}}},
    {"a prompt", 2, 23, 4, 2, 32, 0, 2},
};

class CachedAttentionTest : public ::testing::TestWithParam<Case> {};

TEST_P(CachedAttentionTest, HasTheBitsOfAttention) {
  const Case& c = GetParam();
  const std::int64_t width = c.kv_heads * c.size, total = c.past + c.seq;
  const Tensor q = random_floats({c.batch, c.seq, c.heads * c.size}, 1),
               k = random_floats({c.batch, c.seq, width}, 2), v = random_floats({c.batch, c.seq, width}, 3),
               past_k = random_floats({c.batch, c.past, width}, 4),
               past_v = random_floats({c.batch, c.past, width}, 5);
  Tensor keys = Tensor::allocate(DType::kF32, {c.batch, c.kv_heads, c.blocks, c.size, kKeysOfBlock});
  Tensor values = Tensor::allocate(DType::kF32, {c.batch, c.kv_heads, c.blocks * kKeysOfBlock, c.size});
  // What is behind the past is never looked at: NaN would be seen.
  std::fill_n(keys.mut<float>(), keys.size(), std::nanf(""));
  std::fill_n(values.mut<float>(), values.size(), std::nanf(""));
  for (std::int64_t b = 0; b < c.batch; ++b) {
    const std::int64_t at = b * c.kv_heads * c.blocks * kKeysOfBlock * c.size;
    store_keys(past_k.as<float>() + b * c.past * width, c.past, c.kv_heads, c.size, c.blocks, 0,
               keys.mut<float>() + at);
    store_values(past_v.as<float>() + b * c.past * width, c.past, c.kv_heads, c.size, c.blocks, 0,
                 values.mut<float>() + at);
  }
  // Attention takes the past as [batch, heads, past, size].
  const auto by_heads = [&](const Tensor& from) {
    Tensor to = Tensor::allocate(DType::kF32, {c.batch, c.kv_heads, c.past, c.size});
    for (std::int64_t i = 0; i < from.size(); ++i) {
      const std::int64_t d = i % c.size, h = i / c.size % c.kv_heads, p = i / width % c.past,
                         b = i / width / c.past;
      to.mut<float>()[((b * c.kv_heads + h) * c.past + p) * c.size + d] = from.as<float>()[i];
    }
    return to;
  };
  Node attention, cached;
  attention.op = "Attention";
  attention.attrs = {{"q_num_heads", c.heads}, {"kv_num_heads", c.kv_heads}, {"is_causal", std::int64_t{1}}};
  cached.domain = "pare";
  cached.op = "CachedAttention";
  cached.attrs = {{"q_num_heads", c.heads}, {"kv_num_heads", c.kv_heads}};
  std::vector<Argument> in = {{q}, {k}, {v}, {}};
  for (const auto& [key, value] : c.attrs) {
    cached.attrs[key] = value;
    if (key != "window") {
      attention.attrs[key] = value;
      continue;
    }
    Tensor mask = Tensor::allocate(DType::kBool, {c.seq, total});
    for (std::int64_t i = 0; i < c.seq; ++i)
      for (std::int64_t j = 0; j < total; ++j)
        mask.mut<std::uint8_t>()[i * total + j] = c.past + i - j < std::get<std::int64_t>(value) ? 1 : 0;
    in[3].tensor = mask;
  }
  if (c.past > 0) {
    in.push_back({by_heads(past_k)});
    in.push_back({by_heads(past_v)});
  }
  const Dims out = q.dims();
  ThreadPool one(1), two(2);
  std::vector<float> want, in_double;
  ASSERT_EQ(run_kernel(kernel_named("Attention/cpu:packed"), attention, in, out, one, want), "");
  const std::vector<Argument> arguments = {
      {q}, {k}, {v}, {keys}, {values}, {Tensor::from<std::int64_t>(DType::kI64, {}, {c.past})}};
  for (const Isa isa : testing::isa_classes()) {
    const WithIsa with(isa);
    for (ThreadPool* pool : {&one, &two}) {
      std::vector<float> got;
      ASSERT_EQ(
          run_kernel(kernel_named("pare.CachedAttention/cpu:in place"), cached, arguments, out, *pool, got),
          "");
      EXPECT_TRUE(same_bits(got, want)) << "class " << static_cast<int>(isa);
    }
  }
  ASSERT_EQ(
      run_kernel(kernel_named("pare.CachedAttention/cpu:reference"), cached, arguments, out, one, in_double),
      "");
  // Scores are sums of `size` products below 1, so within (size + 3) eps * size * scale, which softmax passes
  // on; the weights sum to 1, values are below 1, and that sum adds (total + 40) eps.
  const double tolerance = (2.0 * static_cast<double>(c.size + 3) * static_cast<double>(c.size) +
                            static_cast<double>(total) + 40) *
                           0x1p-24;
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(want[i], in_double[i], tolerance);
}

INSTANTIATE_TEST_SUITE_P(Ops, CachedAttentionTest, ::testing::ValuesIn(kCases));

TEST(CachedAttention, RefusesAPastBeyondTheRoom) {
  Node node;
  node.domain = "pare";
  node.op = "CachedAttention";
  node.attrs = {{"q_num_heads", std::int64_t{2}}, {"kv_num_heads", std::int64_t{2}}};
  const Tensor row = random_floats({1, 1, 16}, 1);
  ThreadPool pool(1);
  std::vector<float> out;
  for (const std::int64_t past : {-1, 17}) {
    const std::vector<Argument> in = {{row},
                                      {row},
                                      {row},
                                      {random_floats({1, 2, 1, 8, 16}, 2)},
                                      {random_floats({1, 2, 16, 8}, 3)},
                                      {Tensor::from<std::int64_t>(DType::kI64, {}, {past})}};
    EXPECT_THROW(
        run_kernel(kernel_named("pare.CachedAttention/cpu:in place"), node, in, {1, 1, 16}, pool, out),
        Error);
  }
}

}  // namespace
}  // namespace pare
