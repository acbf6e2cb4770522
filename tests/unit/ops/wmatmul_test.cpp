// pare.WMatMul: every kernel against DequantizeLinear and pare.MatMul in every bit, and against the
// definition in double, for all code types, groups, zero points and block formats, in every instruction
// class.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/numeric/convert.h"
#include "engine/numeric/f16.h"
#include "engine/numeric/ggml_codes.h"
#include "engine/ops/matmul/wmatmul.h"
#include "tests/unit/ops/kernel_run.h"

namespace pare {
namespace {

using testing::Argument;
using testing::kernel_named;
using testing::random_floats;
using testing::run_kernel;
using testing::same_bits;
using testing::WithIsa;

Tensor random_bytes(DType type, Dims dims, std::uint32_t seed) {
  Tensor t = Tensor::allocate(type, std::move(dims));
  std::mt19937 random(seed);
  for (std::int64_t i = 0; i < t.bytes(); ++i) t.mut<std::uint8_t>()[i] = static_cast<std::uint8_t>(random());
  return t;
}

struct Case {
  const char* what;
  DType codes;
  std::int64_t m, k, n;
  std::int64_t block = 0;  // 0: a scale a column; -1: one scale
  bool trans_b = false, zero = false, half_scales = false;
  const char* activation = "";
  bool bias = false, residual = false;
  bool positive = false;  // scales: with half_scales what wmatmul_folds() takes
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.what; }

const Case kCases[] = {
    {"one row, int4, groups of 32", DType::kI4, 1, 64, 64, 32},
    {"uint4 with zero points", DType::kU4, 1, 96, 128, 32, false, true},
    {"rows of weights, float16 scales", DType::kI4, 1, 128, 80, 64, true, false, true},
    {"odd sizes", DType::kU4, 3, 37, 51, 16, false, true},
    {"a last group that is short, ragged columns", DType::kI4, 2, 50, 17, 32, true, false, false, "Silu"},
    {"groups of 5", DType::kU4, 1, 23, 19, 5, false, true, true},
    {"one column", DType::kI4, 4, 33, 1, 16},
    {"one value", DType::kI4, 1, 1, 1, 0},
    {"one scale", DType::kI4, 1, 40, 24, -1},
    {"a scale a column", DType::kU4, 1, 40, 24, 0, false, true},
    {"E2M1 in groups of 16", DType::kE2M1, 1, 48, 70, 16},
    {"E2M1, five rows", DType::kE2M1, 5, 48, 70, 16, true},
    {"two bits", DType::kU2, 2, 64, 33, 16, false, true},
    {"two bits, signed", DType::kI2, 7, 36, 33, 12, true},
    {"int8 a column", DType::kI8, 1, 60, 65, 0, true},
    {"uint8 without zero points", DType::kU8, 1, 60, 65, 20},
    {"uint8 with zero points", DType::kU8, 6, 60, 65, 20, true, true},
    {"int8 with zero points, bias, residual", DType::kI8, 2, 31, 47, 8, false, true, false, "Relu", true,
     true},
    {"many rows", DType::kI4, 200, 64, 130, 32, false, false, false, "Gelu", true, true},
    {"positive float16 scales", DType::kI4, 1, 128, 150, 32, true, false, true, "", false, false, true},
    {"positive float16 scales, odd sizes", DType::kI4, 3, 45, 77, 15, false, false, true, "Silu", true, true,
     true},
    {"positive float16 scales, zero points", DType::kU4, 1, 96, 70, 32, true, true, true, "", false, true,
     true},
    {"positive float16 scales, zero points, many rows", DType::kU4, 70, 50, 70, 16, false, true, true, "",
     true, false, true},
    {"positive float32 scales", DType::kU4, 2, 64, 70, 32, false, true, false, "", false, false, true},
    {"no rows", DType::kI4, 0, 16, 16, 16},
    {"no inner dimension", DType::kI4, 2, 0, 16, 0, false, false, false, "", true},
};

class WMatMulTest : public ::testing::TestWithParam<Case> {};

TEST_P(WMatMulTest, HasTheBitsOfTheFloatProduct) {
  const Case& c = GetParam();
  const Dims matrix = c.trans_b ? Dims{c.n, c.k} : Dims{c.k, c.n};
  const Tensor codes = random_bytes(c.codes, matrix, 1);
  const std::int64_t groups = c.block > 0 ? (c.k + c.block - 1) / c.block : 1;
  const Dims per = c.block > 0    ? (c.trans_b ? Dims{c.n, groups} : Dims{groups, c.n})
                   : c.block == 0 ? Dims{c.n}
                                  : Dims{};
  Tensor scales = random_floats(per, 2);
  if (c.half_scales)
    for (std::int64_t i = 0; i < scales.size(); ++i)
      scales.mut<float>()[i] = decode_f16(encode_f16(scales.as<float>()[i]));
  if (c.positive)
    for (std::int64_t i = 0; i < scales.size(); ++i)
      scales.mut<float>()[i] = std::fabs(scales.as<float>()[i]);
  Node dq;
  dq.op = "DequantizeLinear";
  dq.attrs["axis"] = std::int64_t{c.block > 0 ? (c.trans_b ? 1 : 0) : (c.trans_b ? 0 : 1)};
  if (c.block > 0) dq.attrs["block_size"] = c.block;
  std::vector<Argument> dq_in = {{codes, true}, {scales, true}};
  if (c.zero) dq_in.push_back({random_bytes(c.codes, per, 3), true});
  ThreadPool one(1), two(2);
  std::vector<float> weights;
  ASSERT_EQ(run_kernel(kernel_named("DequantizeLinear/cpu:rows"), dq, dq_in, matrix, one, weights), "");

  const Dims out = {c.m, c.n};
  const Tensor a = random_floats({c.m, c.k}, 4), bias = random_floats({c.n}, 5),
               residual = random_floats(out, 6);
  Node product;
  product.domain = "pare";
  product.op = "MatMul";
  product.attrs["activation"] = std::string(c.activation);
  product.attrs["trans_b"] = std::int64_t{c.trans_b ? 1 : 0};
  std::vector<Argument> in = {{a},
                              {Tensor::from(DType::kF32, matrix, weights), true},
                              {c.bias ? bias : Tensor(), true},
                              {c.residual ? residual : Tensor()}};
  std::vector<float> want, in_double;
  ASSERT_EQ(run_kernel(kernel_named("pare.MatMul/cpu:packed"), product, in, out, one, want), "");
  ASSERT_EQ(run_kernel(kernel_named("pare.MatMul/cpu:reference"), product, in, out, one, in_double), "");

  Node node = product;
  node.op = "WMatMul";
  if (c.block > 0) node.attrs["block_size"] = c.block;
  std::vector<Argument> arguments = {{a}, {codes, true}, {scales, true}, {}, in[2], in[3]};
  if (c.zero) arguments[3] = dq_in[2];
  for (const Isa isa : testing::isa_classes()) {
    const WithIsa with(isa);
    for (ThreadPool* pool : {&one, &two}) {
      std::vector<float> got;
      ASSERT_EQ(run_kernel(kernel_named("pare.WMatMul/cpu:panels"), node, arguments, out, *pool, got), "");
      EXPECT_TRUE(same_bits(got, want)) << "class " << static_cast<int>(isa);
    }
  }
  // The reference's sums are the same in double: the bits of that of pare.MatMul.
  std::vector<float> reference;
  ASSERT_EQ(run_kernel(kernel_named("pare.WMatMul/cpu:reference"), node, arguments, out, one, reference), "");
  EXPECT_TRUE(same_bits(reference, in_double));
}

// What is folded has the bits of the definition for every code, zeros' signs too; scales of 8 or 11 bits are
// folded.
TEST(WMatMulFolds, KeepsEveryBit) {
  using Shift = WMatMulTask::Shift;
  std::mt19937 random(11);
  const auto uniform = [&] { return static_cast<float>(random() % 20001) * 1e-4f - 1.0f; };
  const auto power = [&] { return std::ldexp(1.0f, static_cast<int>(random() % 30) - 20); };
  int folded[3] = {}, fit[3] = {};
  for (int i = 0; i < 30000; ++i) {
    const auto shift = static_cast<Shift>(i % 3);
    const bool few_bits = random() % 2 == 0;
    float scale = uniform() * power(), other = 0;
    if (few_bits) scale = decode_f16(encode_f16(scale));
    if (shift == Shift::kZero) other = static_cast<float>(static_cast<int>(random() % 31) - 15);
    if (shift == Shift::kOffset) other = decode_f16(encode_f16(uniform() * 8 * std::fabs(scale)));
    if (random() % 16 == 0) scale = random() % 2 == 0 ? 0.0f : -0.0f;
    if (random() % 16 == 0) other = random() % 2 == 0 ? 0.0f : -0.0f;
    if (random() % 64 == 0) scale = INFINITY;
    const float first = random() % 2 == 0 ? 0.0f : -8.0f;
    const bool folds = wmatmul_folds(shift, first, scale, other);
    const auto which = static_cast<std::size_t>(i % 3);
    if (few_bits && scale > 0 && std::isfinite(scale) && shift != Shift::kOffset) {
      ++fit[which];
      EXPECT_TRUE(folds) << scale << " " << other;
    }
    if (!folds) continue;
    ++folded[which];
    for (const float start : {kNearCode, kFarCode})
      for (int code = 0; code < 16; ++code) {
        const float value = first + static_cast<float>(code), away = first - start;
        const float want = shift == Shift::kNone   ? scale * value
                           : shift == Shift::kZero ? scale * (value - other)
                                                   : std::fma(scale, value, other);
        const float addend = shift == Shift::kNone   ? scale * away
                             : shift == Shift::kZero ? scale * (away - other)
                                                     : std::fma(scale, away, other);
        const float got = std::fma(scale, start + static_cast<float>(code), addend);
        ASSERT_EQ(std::memcmp(&got, &want, 4), 0) << scale << " " << other << " " << code;
      }
  }
  for (const int count : folded) EXPECT_GT(count, 1000);
  EXPECT_GT(fit[0], 1000);
  EXPECT_FALSE(wmatmul_folds(Shift::kNone, -8, -0.5f, 0));  // -0.5 * 0 is -0
  EXPECT_FALSE(wmatmul_folds(Shift::kNone, -8, 0.0f, 0));   // 0 * -8 too
  EXPECT_FALSE(wmatmul_folds(Shift::kNone, -8, 0.1f, 0));   // 24 bits
  EXPECT_TRUE(wmatmul_folds(Shift::kOffset, 0, 0.25f, -2.5f));
  EXPECT_FALSE(wmatmul_folds(Shift::kOffset, 0, 0.25f, 1.0f / (1 << 20)));  // bits too far apart
}

INSTANTIATE_TEST_SUITE_P(Ops, WMatMulTest, ::testing::ValuesIn(kCases));

// Blocks whose scales are finite and of ordinary size: codes are random, the half floats not.
std::vector<std::uint8_t> random_blocks(const GgmlType& type, std::int64_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count * type.bytes));
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  const std::string name = type.name;
  std::vector<int> halves = {0};
  if (name == "Q4_1" || name == "Q5_1" || name == "Q4_K" || name == "Q5_K") halves = {0, 2};
  if (name == "Q2_K") halves = {80, 82};
  if (name == "Q3_K") halves = {108};
  if (name == "Q6_K") halves = {208};
  for (std::int64_t b = 0; b < count; ++b)
    for (const int at : halves) {
      const std::uint16_t code = encode_f16(static_cast<float>(random() % 2001) * 1e-3f - 1.0f);
      if (name != "MXFP4")
        std::memcpy(&bytes[static_cast<std::size_t>(b * type.bytes + at)], &code, sizeof code);
      else
        bytes[static_cast<std::size_t>(b * type.bytes)] = static_cast<std::uint8_t>(random() % 40 + 100);
    }
  return bytes;
}

class BlocksTest : public ::testing::TestWithParam<const char*> {};

TEST_P(BlocksTest, SplitIntoCodesTheyDecodeToTheSameBits) {
  const GgmlType* type = find_ggml_type(GetParam());
  ASSERT_NE(type, nullptr);
  const GgmlCoding* coding = find_ggml_coding(*type);
  ASSERT_NE(coding, nullptr);
  ASSERT_EQ(type->block % coding->group, 0);
  const std::vector<std::uint8_t> blocks = random_blocks(*type, 200, 7);
  std::vector<float> want(static_cast<std::size_t>(200 * type->block));
  type->decode(blocks.data(), want.data(), 200);
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(type->block));
  float scales[16], offsets[16];
  for (int b = 0; b < 200; ++b) {
    coding->split(blocks.data() + b * type->bytes, codes.data(), scales, offsets);
    for (int i = 0; i < type->block; ++i) {
      const std::uint8_t code = codes[static_cast<std::size_t>(i)];
      ASSERT_TRUE(coding->bits == 8 || code < 16);
      const float value =
          coding->bits == 4 ? coding->values[code] : static_cast<float>(static_cast<std::int8_t>(code));
      const float got =
          std::fma(scales[i / coding->group], value, coding->offsets ? offsets[i / coding->group] : -0.0f);
      ASSERT_EQ(std::memcmp(&got, &want[static_cast<std::size_t>(b * type->block + i)], 4), 0)
          << "block " << b << " element " << i << ": " << got;
    }
  }
}

TEST_P(BlocksTest, MultiplyAsTheirFloatsDo) {
  const GgmlType* type = find_ggml_type(GetParam());
  for (const std::int64_t rows : {1, 3, 9}) {
    const std::int64_t k = 2 * type->block, n = 75;
    const std::vector<std::uint8_t> blocks = random_blocks(*type, 2 * n, 8);
    const Tensor codes = Tensor::from(DType::kU8, {n, 2 * type->bytes}, blocks);
    Tensor weights = Tensor::allocate(DType::kF32, {n, k});
    type->decode(blocks.data(), weights.mut<float>(), 2 * n);
    const Tensor a = random_floats({rows, k}, 9);
    Node product, node;
    product.domain = node.domain = "pare";
    product.op = "MatMul";
    product.attrs["trans_b"] = std::int64_t{1};
    node.op = "WMatMul";
    node.attrs["format"] = std::string(type->name);
    ThreadPool one(1), two(2);
    std::vector<float> want;
    ASSERT_EQ(run_kernel(kernel_named("pare.MatMul/cpu:packed"), product, {{a}, {weights, true}}, {rows, n},
                         one, want),
              "");
    for (const Isa isa : testing::isa_classes()) {
      const WithIsa with(isa);
      std::vector<float> got;
      ASSERT_EQ(run_kernel(kernel_named("pare.WMatMul/cpu:panels"), node, {{a}, {codes, true}}, {rows, n},
                           two, got),
                "");
      EXPECT_TRUE(same_bits(got, want)) << rows << " rows, class " << static_cast<int>(isa);
    }
  }
}

TEST_P(BlocksTest, RowsAreDecoded) {
  const GgmlType* type = find_ggml_type(GetParam());
  const std::vector<std::uint8_t> blocks = random_blocks(*type, 6, 10);
  std::vector<float> want(static_cast<std::size_t>(6 * type->block)), got;
  type->decode(blocks.data(), want.data(), 6);
  Node node;
  node.domain = "pare";
  node.op = "DecodeBlocks";
  node.attrs["format"] = std::string(type->name);
  ThreadPool pool(2);
  ASSERT_EQ(run_kernel(kernel_named("pare.DecodeBlocks/cpu:ref"), node,
                       {{Tensor::from(DType::kU8, {3, 2 * type->bytes}, blocks), true}}, {3, 2 * type->block},
                       pool, got),
            "");
  EXPECT_TRUE(same_bits(got, want));
}

INSTANTIATE_TEST_SUITE_P(Ops, BlocksTest,
                         ::testing::Values("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K",
                                           "Q5_K", "Q6_K", "MXFP4"));

TEST(WMatMul, DeclinesWhatDoesNotFit) {
  const Kernel& kernel = kernel_named("pare.WMatMul/cpu:panels");
  Node node;
  node.domain = "pare";
  node.op = "WMatMul";
  ThreadPool pool(1);
  std::vector<float> out;
  const Tensor a = random_floats({2, 32}, 1), codes = random_bytes(DType::kI4, {32, 8}, 2);
  const auto why = [&](const std::vector<Argument>& in) {
    return run_kernel(kernel, node, in, {2, 8}, pool, out);
  };
  const Argument good = {random_floats({8}, 3), true};
  EXPECT_EQ(why({{a}, {codes, true}, good}), "");
  EXPECT_NE(why({{a}, {codes, false}, good}), "");
  EXPECT_NE(why({{a}, {codes, true}, {random_floats({7}, 3), true}}), "");
  EXPECT_NE(why({{a}, {random_bytes(DType::kI4, {31, 8}, 2), true}, good}), "");
  EXPECT_NE(why({{a}, {random_bytes(DType::kI32, {32, 8}, 2), true}, good}), "");
  EXPECT_NE(why({{a}, {codes, true}, good, {random_bytes(DType::kI4, {7}, 2), true}}), "");
  node.attrs["block_size"] = std::int64_t{16};
  EXPECT_NE(why({{a}, {codes, true}, good}), "");
  node.attrs.erase("block_size");
  node.attrs["format"] = std::string("Q9_9");
  EXPECT_NE(why({{a}, {random_bytes(DType::kU8, {8, 18}, 2), true}}), "");
  node.attrs["format"] = std::string("Q4_0");
  EXPECT_EQ(why({{a}, {random_bytes(DType::kU8, {8, 18}, 2), true}}), "");
  EXPECT_NE(why({{a}, {random_bytes(DType::kU8, {8, 17}, 2), true}}), "");
}

}  // namespace
}  // namespace pare
