// Sequences and optionals in a session, and through a file.
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/run/session.h"
#include "graphsurgeon/onnx/write.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare {
namespace {

using Floats = std::vector<float>;

Tensor row(const Floats& v) { return Tensor::from(DType::kF32, {static_cast<std::int64_t>(v.size())}, v); }
Tensor whole(std::int64_t v) { return Tensor::from<std::int64_t>(DType::kI64, {}, {v}); }
Floats values(const Tensor& t) { return {t.as<float>(), t.as<float>() + t.size()}; }

RunValue tensor(Tensor t) { return {std::move(t), {}, true}; }
RunValue sequence(std::vector<Tensor> t) { return {{}, std::move(t), true}; }

std::vector<Floats> all(const RunValue& value) {
  std::vector<Floats> list;
  for (const Tensor& t : value.sequence) list.push_back(values(t));
  return list;
}

class Sequences : public ::testing::Test {
 protected:
  // Through a file and back, so that what is written is what runs.
  std::vector<RunValue> run(const std::string& text, const std::vector<RunValue>& in) {
    const Graph graph = text_graph(21, text);
    const Graph again = read_bytes(onnx_bytes(graph));
    EXPECT_EQ(canonical_text(again), canonical_text(graph));
    SessionOptions options;
    options.pool = &pool_;
    Session session(std::make_shared<Graph>(again), options);
    session.run_values(in);
    return session.run_values(in);
  }
  std::string error_of(const std::string& text, const std::vector<RunValue>& in) {
    try {
      run(text, in);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  ThreadPool pool_{1};
};

TEST_F(Sequences, InsertEraseAt) {
  const std::string text =
      "g (seq(float[N]) s, float[N] x, int64 p) => (seq(float[N]) t, seq(float[N]) u, float[N] v, int64 n) {"
      "  t = SequenceInsert(s, x, p) u = SequenceErase(t, p) last = SequenceInsert(u, x) v = "
      "SequenceAt(last, p)"
      "  n = SequenceLength(last) }";
  const RunValue s = sequence({row({1}), row({2, 3})});
  struct Case {
    std::int64_t place;
    std::vector<Floats> inserted;
  };
  for (const Case& c :
       {Case{0, {{9}, {1}, {2, 3}}}, Case{1, {{1}, {9}, {2, 3}}}, Case{-2, {{9}, {1}, {2, 3}}}}) {
    const std::vector<RunValue> out = run(text, {s, tensor(row({9})), tensor(whole(c.place))});
    EXPECT_EQ(all(out[0]), c.inserted) << c.place;
    EXPECT_EQ(out[3].tensor.to_ints(), (std::vector<std::int64_t>{3}));
  }
  for (const std::int64_t place : {3, -3})
    EXPECT_NE(error_of(text, {s, tensor(row({9})), tensor(whole(place))}).find("outside"), std::string::npos);
}

TEST_F(Sequences, SplitAndConcat) {
  const std::string text =
      "g (float[N, 3] x, int64[K] parts) => (float[M, 3] y, float[P, 3, 1] z, int64 n) {"
      "  s = SplitToSequence <axis = 0> (x, parts) y = ConcatFromSequence <axis = 0> (s)"
      "  t = SplitToSequence <axis = 1, keepdims = 0> (x) z1 = ConcatFromSequence <axis = 1, new_axis = 1> "
      "(t)"
      "  ax = Constant <value_ints = [2]> () z = Unsqueeze(z1, ax) n = SequenceLength(s) }";
  const Tensor x = Tensor::from<float>(DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const std::vector<RunValue> out = run(text, {tensor(x), tensor(Tensor::ints({0, 2}))});
  EXPECT_EQ(values(out[0].tensor), values(x));
  EXPECT_EQ(values(out[1].tensor), values(x));
  EXPECT_EQ(out[1].tensor.dims(), (Dims{2, 3, 1}));
  EXPECT_EQ(out[2].tensor.to_ints()[0], 2);
  EXPECT_NE(error_of(text, {tensor(x), tensor(Tensor::ints({3}))}).find("parts"), std::string::npos);
  EXPECT_NE(error_of(text, {tensor(x), tensor(Tensor::ints({1}))}).find("add up"), std::string::npos);
}

// A sequence that grows in a loop, from an empty one; elements differ in shape.
TEST_F(Sequences, GrowsInALoop) {
  const std::vector<RunValue> out =
      run("g (int64 m, float[N] x) => (seq(float[K]) t) <bool yes = {1}> {"
          "  s = SequenceEmpty () t = Loop (m, yes, s) <body = b (int64 i, bool c, seq(float[K]) q) =>"
          "    (bool co, seq(float[K]) r) { co = Identity(c) n = SequenceLength(q) f = Cast <to = 1> (n)"
          "      ax = Constant <value_ints = [0]> () f1 = Unsqueeze(f, ax) e = Concat <axis = 0> (x, f1)"
          "      r = SequenceInsert(q, e) }> }",
          {tensor(whole(3)), tensor(row({7}))});
  EXPECT_EQ(all(out[0]), (std::vector<Floats>{{7, 0}, {7, 1}, {7, 2}}));
}

TEST_F(Sequences, MapOverTwoSequencesAndATensor) {
  const std::string text =
      "g (seq(float[N]) a, seq(float[N]) b, float[1] k) => (seq(float[N]) s, seq(int64[1]) n) {"
      "  s, n = SequenceMap (a, b, k) <body = m (float[N] x, float[N] y, float[1] z) =>"
      "    (float[N] sum, int64[1] size) { t = Add(x, y) sum = Mul(t, z) size = Shape(x) }> }";
  const std::vector<RunValue> out =
      run(text, {sequence({row({1}), row({2, 3})}), sequence({row({10}), row({20, 30})}), tensor(row({2}))});
  EXPECT_EQ(all(out[0]), (std::vector<Floats>{{22}, {44, 66}}));
  EXPECT_EQ(out[1].sequence[1].to_ints(), (std::vector<std::int64_t>{2}));
  EXPECT_TRUE(run(text, {sequence({}), sequence({}), tensor(row({2}))})[0].sequence.empty());
  EXPECT_NE(error_of(text, {sequence({row({1})}), sequence({}), tensor(row({2}))}).find("elements"),
            std::string::npos);
}

TEST_F(Sequences, Optionals) {
  const std::string text =
      "g (optional(float[N]) o, float[N] x) => (bool has, float[M] y, optional(float[N]) p) {"
      "  has = OptionalHasElement(o)"
      "  y = If (has) <then_branch = t () => (float[N] a) { a = OptionalGetElement(o) },"
      "                else_branch = e () => (float[N] b) { b = Neg(x) }>"
      "  p = Identity(o) }";
  std::vector<RunValue> out = run(text, {tensor(row({5})), tensor(row({1}))});
  EXPECT_EQ(values(out[1].tensor), (Floats{5}));
  EXPECT_EQ(values(out[2].tensor), (Floats{5}));
  out = run(text, {RunValue{{}, {}, false}, tensor(row({1}))});
  EXPECT_EQ(*out[0].tensor.as<std::uint8_t>(), 0);
  EXPECT_EQ(values(out[1].tensor), (Floats{-1}));
  EXPECT_FALSE(out[2].present);
}

TEST_F(Sequences, WrongKindsAreSaid) {
  EXPECT_NE(error_of("g (seq(float[N]) s) => (float[N] y) { y = Neg(s) }", {sequence({row({1})})})
                .find("is a sequence, a tensor is needed"),
            std::string::npos);
  EXPECT_NE(error_of("g (float[N] s) => (int64 n) { n = SequenceLength(s) }", {tensor(row({1}))})
                .find("input 0 is no sequence"),
            std::string::npos);
  Session session(std::make_shared<Graph>(text_graph(21,
                                                     "g (float[N] x) => (seq(float[N]) s) "
                                                     "{ s = SequenceConstruct(x, x) }")),
                  {&pool_, true, false});
  EXPECT_THROW(session.run({row({1})}), Error);
  EXPECT_EQ(session.run_values({tensor(row({1}))})[0].sequence.size(), 2U);
}

}  // namespace
}  // namespace pare
