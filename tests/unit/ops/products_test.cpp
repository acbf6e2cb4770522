// Einsum, Det, LRN, LinearAttention, CausalConvWithState, BatchNormalization in training mode.
#include "engine/ir/einsum.h"
#include "tests/unit/ops/op_case.h"

namespace pare::testing {
namespace {

Attribute number(std::int64_t v) { return v; }
Attribute word(const char* text) { return std::string(text); }
Attributes equation(const char* text) { return {{"equation", word(text)}}; }

TEST(Einsum, Equations) {
  const EinsumLabels plain = parse_einsum("ij , jk", {2, 2});
  EXPECT_EQ(plain.out, (std::vector<int>{0, 1}));
  EXPECT_EQ(plain.in[0], (std::vector<int>{0, 2}));
  EXPECT_EQ(plain.in[1], (std::vector<int>{2, 1}));
  const EinsumLabels open =
      parse_einsum("...a,...->...", {3, 1});  // the shorter ellipsis ends where the longer does
  EXPECT_EQ(open.out, (std::vector<int>{0, 1}));
  EXPECT_EQ(open.in[0], (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(open.in[1], (std::vector<int>{1}));
  for (const char* text :
       {"", "ij,jk", "i1->i", "ij->ii", "ij->k", "ij->i...j...", "i..j", "...i...->i", "ij->ij->ij"})
    EXPECT_THROW(parse_einsum(text, {2}), Error) << text;
}

TEST(Einsum, SumsProducts) {
  const Tensor a = of({2, 3}, {1, 2, 3, 4, 5, 6}), b = of({3, 2}, {1, 0, 0, 1, 1, 1});
  check_values({"Einsum", {a, b}, equation("ij,jk->ik")}, {of({2, 2}, {4, 5, 10, 11})});
  check_values({"Einsum", {a, b}, equation("ij,jk->ki")}, {of({2, 2}, {4, 10, 5, 11})});
  check_values({"Einsum", {a}, equation("ij->j")}, {of({3}, {5, 7, 9})});
  check_values({"Einsum", {a}, equation("ij->")}, {of({}, {21})});
  check_values({"Einsum", {of({2, 2}, {1, 2, 3, 4})}, equation("ii->i")}, {of({2}, {1, 4})});
  check_values({"Einsum", {of({2, 2}, {1, 2, 3, 4})}, equation("ii")}, {of({}, {5})});
  check_values({"Einsum", {a, of({1, 3}, {1, 10, 100})}, equation("ij,ij->i")}, {of({2}, {321, 654})});
  check_values({"Einsum", {of({0, 2}, {}), of({2}, {1, 1})}, equation("ij,j->j")}, {of({2}, {0, 0})});
  check_values({"Einsum", {Tensor::from<std::int8_t>(DType::kI8, {2}, {100, 100})}, equation("i->")},
               {Tensor::from<std::int8_t>(DType::kI8, {}, {-56})});
  // 60 products of numbers below 1, each vector kernel in its own order: 60 roundings of sums below 60.
  for (const char* text : {"bij,bjk->bik", "bij,bjk->ikb", "...ij,...kj->...ik"})
    check_case(
        {"Einsum", {floats({4, 17, 60}), floats({4, 60, 60}, 2)}, equation(text), 1, 0, 60 * 60 * 0x1p-24});
  check_case(
      {"Einsum", {floats({3, 5, 4, 8}), floats({3, 6, 4, 8}, 2)}, equation("bqhd,bkhd->bhqk"), 1, 0, 1e-5});
  check_case({"Einsum",
              {floats({3, 5}), floats({5, 4}, 2), floats({4, 2}, 3)},
              equation("ij,jk,kl->il"),
              1,
              0,
              1e-5});
  check_case({"Einsum", {floats({1, 5}), floats({7, 5}, 2)}, equation("bi,bi->b"), 1, 0, 1e-5});  // repeated
  check_case({"Einsum", {floats({5}), floats({4}, 2)}, equation("i,j->ij")});
  check_case({"Einsum", {floats({5}), floats({5}, 2)}, equation("i,i->"), 1, 0, 1e-5});
  check_case({"Einsum",
              {floats({3, 5, 2}), floats({5, 4}, 2)},
              equation("ijx,jk->ik"),
              1,
              0,
              1e-5});  // x: one input's
  for (const DType type : {DType::kF16, DType::kBF16, DType::kF64})
    check_case({"Einsum", {to_type(a, type), to_type(b, type)}, equation("ij,jk->ik")});
}

TEST(Products, Det) {
  check_values({"Det", {of({2, 2, 2}, {1, 2, 3, 4, 0, 1, 1, 0})}}, {of({2}, {-2, -1})});
  check_values({"Det", {of({2, 2}, {1, 2, 2, 4})}}, {of({}, {0})});
  check_values({"Det", {of({0, 0}, {})}}, {of({}, {1})});  // of no elements: the empty product
  check_case({"Det", {to_type(floats({3, 4, 4}), DType::kF64)}});
}

TEST(Products, LocalResponse) {
  // size 2: the channel and the one behind it; alpha / size = 1/2.
  const Attributes attrs = {{"size", number(2)}, {"alpha", 1.0F}, {"beta", 1.0F}, {"bias", 1.0F}};
  check_values({"LRN", {of({1, 3, 1, 1}, {1, 2, 0})}, attrs}, {of({1, 3, 1, 1}, {1 / 3.5F, 2 / 3.0F, 0})});
  check_case({"LRN", {to_type(floats({2, 4, 3}), DType::kBF16)}, {{"size", number(3)}}});
}

TEST(Products, LinearAttentionIsItsRecurrence) {
  // One head, keys and values of one number: S = S + k v; y = q S (scale 1).
  const Tensor q = of({1, 3, 1}, {1, 1, 2}), k = of({1, 3, 1}, {1, 2, 3}), v = of({1, 3, 1}, {10, 20, 30});
  const Attributes linear = {
      {"update_rule", word("linear")}, {"q_num_heads", number(1)}, {"kv_num_heads", number(1)}};
  check_values({"LinearAttention", {q, k, v}, linear, 2},
               {of({1, 3, 1}, {10, 50, 280}), of({1, 1, 1, 1}, {140})});
  check_values({"LinearAttention", {q, k, v, of({1, 1, 1, 1}, {-10})}, linear, 2},
               {of({1, 3, 1}, {0, 40, 260}), of({1, 1, 1, 1}, {130})});
  // delta with beta 1 and keys of length 1: the state forgets what the key named before.
  Attributes delta = linear;
  delta["update_rule"] = word("delta");
  const Tensor ones = of({1, 3, 1}, {1, 1, 1});
  check_values({"LinearAttention", {q, ones, v, Tensor(), Tensor(), ones}, delta, 2},
               {of({1, 3, 1}, {10, 20, 60}), of({1, 1, 1, 1}, {30})});
  // A state of another type keeps it.
  check_case(
      {"LinearAttention",
       {to_type(q, DType::kF16), to_type(k, DType::kF16), to_type(v, DType::kF16), of({1, 1, 1, 1}, {1})},
       linear,
       2});
  check_case({"LinearAttention", {floats({2, 0, 4}), floats({2, 0, 4}), floats({2, 0, 6})}, linear, 2});
}

TEST(Products, CausalConvGoesOnWhereItStopped) {
  const Tensor x = floats({2, 3, 7}), w = floats({3, 1, 4}, 2), bias = floats({3}, 3);
  for (const char* activation : {"none", "silu"}) {
    const Attributes attrs = {{"activation", word(activation)}};
    const std::vector<Tensor> whole = check_case({"CausalConvWithState", {x, w, bias}, attrs, 2});
    // The first two places, then the other five with the state: the same numbers.
    Tensor head = Tensor::allocate(DType::kF32, {2, 3, 2}), tail = Tensor::allocate(DType::kF32, {2, 3, 5});
    for (std::int64_t i = 0; i < 42; ++i)
      (i % 7 < 2 ? head.mut<float>()[i / 7 * 2 + i % 7] : tail.mut<float>()[i / 7 * 5 + i % 7 - 2]) =
          x.as<float>()[i];
    const std::vector<Tensor> first = check_case({"CausalConvWithState", {head, w, bias}, attrs, 2});
    const std::vector<Tensor> rest = check_case({"CausalConvWithState", {tail, w, bias, first[1]}, attrs, 2});
    EXPECT_TRUE(equal_bytes(rest[1], whole[1]));
    for (std::int64_t i = 0; i < 42; ++i)
      EXPECT_EQ(whole[0].as<float>()[i], i % 7 < 2 ? first[0].as<float>()[i / 7 * 2 + i % 7]
                                                   : rest[0].as<float>()[i / 7 * 5 + i % 7 - 2]);
  }
}

TEST(Products, BatchNormalizationInTraining) {
  // Channel values 0, 2, 4, 6: mean 3, variance 5. Running: 0.5 * 10 + 0.5 * 3, 0.5 * 1 + 0.5 * 5.
  const OpCase c{"BatchNormalization",
                 {of({2, 1, 2}, {0, 2, 4, 6}), of({1}, {2}), of({1}, {1}), of({1}, {10}), of({1}, {1})},
                 {{"training_mode", number(1)}, {"momentum", 0.5F}, {"epsilon", 0.0F}},
                 3,
                 1e-6};
  const float unit = 2 / std::sqrt(5.0F);
  check_values(
      c, {of({2, 1, 2}, {1 - 3 * unit, 1 - unit, 1 + unit, 1 + 3 * unit}), of({1}, {6.5F}), of({1}, {3})});
}

TEST(Types, CastByTheLanguageIsTheCastOfTheTable) {
  const DType types[] = {DType::kF32, DType::kF64, DType::kI8,  DType::kU8,  DType::kI16, DType::kU16,
                         DType::kI32, DType::kU32, DType::kI64, DType::kU64, DType::kBool};
  const Tensor values = of({8}, {0, 1, -1, 100, 127, -128, 3.7F, -0.0F});
  for (const DType from : types)
    for (const DType to : types)
      check_case({"Cast", {to_type(values, from)}, {{"to", static_cast<std::int64_t>(to)}}});
  const Tensor wide =
      Tensor::from<std::int64_t>(DType::kI64, {4}, {INT64_MIN, INT64_MAX, (std::int64_t{1} << 24) + 1, -1});
  for (const DType to : types) check_case({"Cast", {wide}, {{"to", static_cast<std::int64_t>(to)}}});
  check_case({"Cast",
              {of({3}, {std::nanf(""), 1e30F, -1e-40F})},
              {{"to", static_cast<std::int64_t>(DType::kBool)}}});
  check_case({"Cast", {to_type(of({2}, {3e38F, 1e-45F}), DType::kF64)}, {{"to", number(1)}}});
}

TEST(Types, ComparisonsRepeatEitherSide) {
  for (const char* op : {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
    for (const DType type : {DType::kI32, DType::kU8, DType::kF64, DType::kF32}) {
      const Tensor a = to_type(of({3, 40}, std::vector<float>(120, 2)), type), row = counting(type, {40}, 0),
                   column = counting(type, {3, 1}, 1), one = counting(type, {}, 2);
      check_case({op, {a, row}});
      check_case({op, {row, a}});
      check_case({op, {a, column}});
      check_case({op, {column, row}});
      check_case({op, {one, row}});
      check_case({op, {one, one}});
    }
}

// Types that an operator allows and that hardly anybody uses.
TEST(Types, RareOnes) {
  const Tensor nan_first = Tensor::from<std::uint8_t>(DType::kE4M3FN, {3}, {0x7F, 0x38, 0x00});
  check_values({"IsNaN", {nan_first}}, {Tensor::from<std::uint8_t>(DType::kBool, {3}, {1, 0, 0})});
  const Tensor infinities = Tensor::from<std::uint8_t>(DType::kE5M2, {3}, {0x7C, 0xFC, 0x3C});
  check_values({"IsInf", {infinities}, {{"detect_negative", number(0)}}},
               {Tensor::from<std::uint8_t>(DType::kBool, {3}, {1, 0, 0})});
  check_values(
      {"Shrink", {Tensor::from<std::int8_t>(DType::kI8, {3}, {-9, 0, 9})}, {{"lambd", 1.5F}, {"bias", 1.5F}}},
      {Tensor::from<std::int8_t>(DType::kI8, {3}, {-7, 0, 7})});  // -7.5 and 7.5 cut towards zero
  check_values(
      {"OneHot", {Tensor::from<std::uint16_t>(DType::kU16, {2}, {1, 9}), of({}, {3}), of({2}, {0, 1})}},
      {of({2, 3}, {0, 1, 0, 0, 0, 0})});
  check_values({"OneHot", {to_type(of({2}, {-1, 0}), DType::kF16), of({}, {2}), of({2}, {5, 7})}},
               {of({2, 2}, {5, 7, 7, 5})});
  // Codes of 4 bits, two a byte: 1 2 3 with one more on each side.
  const Tensor codes = Tensor::from<std::uint8_t>(DType::kU4, {3}, {0x21, 0x03}),
               nine = Tensor::from<std::uint8_t>(DType::kU4, {}, {0x09});
  check_values({"Pad", {codes, ints({1, 1}), nine}},
               {Tensor::from<std::uint8_t>(DType::kU4, {5}, {0x19, 0x32, 0x09})});
  check_values({"TensorScatter",
                {Tensor::from<std::uint8_t>(DType::kI4, {1, 3, 1}, {0x21, 0x03}),
                 Tensor::from<std::uint8_t>(DType::kI4, {1, 1, 1}, {0x07}), ints({1})}},
               {Tensor::from<std::uint8_t>(DType::kI4, {1, 3, 1}, {0x71, 0x03})});
  check_values(
      {"GridSample",
       {Tensor::from<std::uint8_t>(DType::kU8, {1, 1, 1, 2}, {10, 21}), of({1, 1, 2, 2}, {0, 0, 0.5F, 0})}},
      {Tensor::from<std::uint8_t>(DType::kU8, {1, 1, 1, 2}, {15, 21})});  // 15.5 is cut
  const auto as = [](const Tensor& t) { return to_type(t, DType::kF64); };
  check_case(
      {"Attention", {as(floats({1, 2, 3, 4})), as(floats({1, 2, 5, 4}, 2)), as(floats({1, 2, 5, 4}, 3))}});
  check_case({"Attention",
              {as(floats({1, 2, 3, 4})), as(floats({1, 2, 5, 4}, 2)), as(floats({1, 2, 5, 4}, 3)),
               counting(DType::kI32, {3, 5})}});
  check_case(
      {"RotaryEmbedding", {as(floats({1, 2, 3, 4})), as(floats({1, 3, 2})), as(floats({1, 3, 2}, 2))}});
}

}  // namespace
}  // namespace pare::testing
