// If, Loop and Scan in a session: every attribute, captures, nesting, no iterations, endless ones, watchers.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/error.h"
#include "engine/ir/fallback.h"
#include "engine/run/session.h"
#include "graphsurgeon/onnx/fallback.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare {
namespace {

Tensor floats(Dims dims, const std::vector<float>& v) {
  return Tensor::from(DType::kF32, std::move(dims), v);
}
Tensor row(const std::vector<float>& v) { return floats({static_cast<std::int64_t>(v.size())}, v); }
Tensor flag(bool v) { return Tensor::from<std::uint8_t>(DType::kBool, {}, {static_cast<std::uint8_t>(v)}); }
Tensor whole(std::int64_t v) { return Tensor::from<std::int64_t>(DType::kI64, {}, {v}); }

std::vector<float> values(const Tensor& t) { return {t.as<float>(), t.as<float>() + t.size()}; }

class ControlFlow : public ::testing::Test {
 protected:
  // Kept, so that a test can run it again.
  Session& session(const std::string& text, int opset = 21) {
    options_.pool = &pool_;
    session_ = std::make_unique<Session>(std::make_shared<Graph>(text_graph(opset, text)), options_);
    return *session_;
  }
  std::string error_of(Session& s, const std::vector<Tensor>& in) {
    try {
      s.run(in);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  ThreadPool pool_{2};
  SessionOptions options_;
  std::unique_ptr<Session> session_;
};

TEST_F(ControlFlow, IfTakesOneBranchAndLeavesTheOtherUntouched) {
  Session& s = session(
      "g (bool c, float[N] x) => (float[M] y, float[K] z) {"
      "  a = Add(x, x)"
      "  y, z = If (c) <then_branch = t () => (float[N] p, float[N] q) { p = Add(a, x) q = Identity(a) },"
      "                 else_branch = e () => (float[O] r, float[N] w) <float[1] k = {7}> {"
      "                    r = Concat <axis = 0> (x, k) w = Neg(a) }>"
      "  a2 = Relu(a)"
      "}");
  for (int i = 0; i < 3; ++i) {
    std::vector<Tensor> out = s.run({flag(true), row({1, -2})});
    EXPECT_EQ(values(out[0]), (std::vector<float>{3, -6}));
    EXPECT_EQ(values(out[1]), (std::vector<float>{2, -4}));
    out = s.run({flag(false), row({1, -2})});
    EXPECT_EQ(values(out[0]), (std::vector<float>{1, -2, 7}));
    EXPECT_EQ(values(out[1]), (std::vector<float>{-2, 4}));
  }
  const Tensor two = Tensor::from<std::uint8_t>(DType::kBool, {2}, {1, 1});
  EXPECT_NE(error_of(s, {two, row({1})}).find("[]"), std::string::npos);  // the input's own shape
}

// Fibonacci by two carried values; the condition ends it before the trip count does.
TEST_F(ControlFlow, LoopCarriesValuesAndStacksWhatItScans) {
  Session& s = session(
      "g (int64 m, bool c, float[1] a, float[1] b) => (float[1] a2, float[1] b2, float[N, 1] all, int64[N] "
      "at) {"
      "  a2, b2, all, at = Loop (m, c, a, b) <body = l (int64 i, bool ci, float[1] p, float[1] q) =>"
      "     (bool co, float[1] qo, float[1] sum, float[1] each, int64 io) <float[1] limit = {50}> {"
      "       sum = Add(p, q) qo = Identity(q) each = Identity(sum) less = Less(sum, limit)"
      "       co = Squeeze(less) io = Identity(i) }>"
      "}");
  std::vector<Tensor> out = s.run({whole(5), flag(true), row({0}), row({1})});
  EXPECT_EQ(values(out[2]), (std::vector<float>{1, 2, 3, 5, 8}));
  EXPECT_EQ(out[2].dims(), (Dims{5, 1}));
  EXPECT_EQ(values(out[1]), (std::vector<float>{8}));
  EXPECT_EQ(out[3].to_ints(), (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
  out = s.run({whole(1000), flag(true), row({0}), row({1})});
  EXPECT_EQ(values(out[2]).back(), 55);
  EXPECT_EQ(out[2].dims(), (Dims{9, 1}));
  for (const auto& none : {std::vector<Tensor>{whole(0), flag(true), row({3}), row({4})},
                           std::vector<Tensor>{whole(-1), flag(true), row({3}), row({4})},
                           std::vector<Tensor>{whole(9), flag(false), row({3}), row({4})}}) {
    out = s.run(none);
    EXPECT_EQ(values(out[0]), (std::vector<float>{3}));
    EXPECT_EQ(out[2].dims(), (Dims{0, 1}));
  }
}

// The carried value grows, so each iteration has other shapes; captured values are not written to.
TEST_F(ControlFlow, LoopOverAValueThatGrows) {
  Session& s = session(
      "g (int64 m, float[N] x) => (float[M] y, float[N] x2) <bool c = {1}> {"
      "  k = Add(x, x)"
      "  y = Loop (m, c, x) <body = l (int64 i, bool ci, float[A] p) => (bool co, float[B] q) {"
      "    co = Identity(ci) d = Add(k, k) q = Concat <axis = 0> (p, d) }>"
      "  x2 = Identity(k)"
      "}");
  for (int i = 0; i < 2; ++i) {
    const std::vector<Tensor> out = s.run({whole(3), row({1})});
    EXPECT_EQ(values(out[0]), (std::vector<float>{1, 4, 4, 4}));
    EXPECT_EQ(values(out[1]), (std::vector<float>{2}));
    EXPECT_EQ(values(s.run({whole(1), row({})})[0]), (std::vector<float>{}));
  }
}

TEST_F(ControlFlow, LoopThatDoesNotEndIsStopped) {
  options_.max_iterations = 1000;
  Session& s = session(
      "g (float[1] x) => (float[1] y) <bool c = {1}> {"
      "  y = Loop (, c, x) <body = l (int64 i, bool ci, float[1] p) => (bool co, float[1] q) {"
      "    co = Identity(ci) q = Add(p, p) }>"
      "}");
  EXPECT_EQ(error_of(s, {row({1})}), "the loop does not end: it was stopped after 1000 iterations");
  EXPECT_EQ(error_of(s, {row({1})}), "the loop does not end: it was stopped after 1000 iterations");
}

TEST_F(ControlFlow, WhatIsScannedMustKeepItsShape) {
  Session& s = session(
      "g (int64 m, float[1] x) => (float[1] y, float[N, M] all) {"
      "  last, all = Loop (m, , x) <body = l (int64 i, bool ci, float[A] p) => (bool co, float[B] q, "
      "float[B] w) {"
      "    co = Identity(ci) q = Concat <axis = 0> (p, p) w = Identity(q) }>"
      "  y = Identity(x)"
      "}");
  EXPECT_EQ(s.run({whole(1), row({1})})[1].dims(), (Dims{1, 2}));
  EXPECT_NE(error_of(s, {whole(2), row({1})}).find("cannot be stacked"), std::string::npos);
}

// A running sum along the second axis, backwards, the results in front of each other along the last axis.
TEST_F(ControlFlow, ScanAlongAxesAndBackwards) {
  Session& s = session(
      "g (float[2] start, float[2, N] x, float[N] w) => (float[2] end, float[2, M] y, float[K] v) {"
      "  end, y, v = Scan (start, x, w) <num_scan_inputs = 2, scan_input_axes = [1, 0],"
      "     scan_input_directions = [1, 0], scan_output_axes = [-1, 0], scan_output_directions = [0, 1],"
      "     body = b (float[2] s, float[2] e, float f) => (float[2] so, float[2] yo, float vo) {"
      "       so = Add(s, e) yo = Identity(so) vo = Neg(f) }>"
      "}");
  for (int i = 0; i < 2; ++i) {
    const std::vector<Tensor> out =
        s.run({row({0, 100}), floats({2, 3}, {1, 2, 3, 4, 5, 6}), row({10, 20, 30})});
    EXPECT_EQ(values(out[0]), (std::vector<float>{6, 115}));
    EXPECT_EQ(values(out[1]), (std::vector<float>{3, 5, 6, 106, 111, 115}));
    EXPECT_EQ(values(out[2]), (std::vector<float>{-30, -20, -10}));
    EXPECT_EQ(s.run({row({0, 1}), floats({2, 0}, {}), row({})})[1].dims(), (Dims{2, 0}));
  }
  EXPECT_NE(error_of(s, {row({0, 1}), floats({2, 1}, {1, 2}), row({1, 2})}).find("shape"), std::string::npos);
}

// A Loop in an If in a Scan; each level captures from those around it.
TEST_F(ControlFlow, Nested) {
  Session& s = session(
      "g (float[N, 2] x, float[2] k) => (float[N, 2] y) <int64 three = {3}, bool yes = {1}> {"
      "  y = Scan (x) <num_scan_inputs = 1, body = b (float[2] e) => (float[2] r) {"
      "    total = ReduceSum <keepdims = 0> (e)"
      "    zero = Sub(total, total)"
      "    up = Greater(total, zero)"
      "    r = If (up) <then_branch = t () => (float[2] p) {"
      "        p = Loop (three, yes, e) <body = l (int64 i, bool c, float[2] v) => (bool co, float[2] w) {"
      "          co = Identity(c) w = Add(v, k) }> },"
      "      else_branch = f () => (float[2] q) { q = Mul(e, k) }> }>"
      "}");
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(values(s.run({floats({3, 2}, {1, 1, -1, -1, 2, 2}), row({10, 20})})[0]),
              (std::vector<float>{31, 61, -10, -20, 32, 62}));
}

// Memory does not grow with the number of iterations.
TEST_F(ControlFlow, BuffersAreBounded) {
  Session& s = session(
      "g (int64 m, float[N] x) => (float[N] y) <bool c = {1}> {"
      "  y = Loop (m, c, x) <body = l (int64 i, bool ci, float[N] p) => (bool co, float[N] q) {"
      "    co = Identity(ci) a = Neg(p) b = Add(a, x) q = Sub(b, a) }>"
      "}");
  const std::int64_t n = 10000;
  const Tensor x = row(std::vector<float>(static_cast<std::size_t>(n), 1.0F));
  s.run({whole(2), x});
  const std::int64_t before = s.buffer_bytes();
  s.run({whole(500), x});
  EXPECT_EQ(s.buffer_bytes(), before);
  EXPECT_LE(before, 4 * 4 * n + 1024);
}

TEST_F(ControlFlow, WatchersAndProfilesReachInside) {
  options_.profile = true;
  Session& s = session(
      "g (bool c, float[2] x) => (float[2] y) <int64 m = {4}, bool yes = {1}> {"
      "  y = If (c) <then_branch = t () => (float[2] p) {"
      "      p = Loop (m, yes, x) <body = l (int64 i, bool ci, float[2] v) => (bool co, float[2] w) {"
      "        co = Identity(ci) w = Add(v, x) }> },"
      "    else_branch = f () => (float[2] q) { q = Neg(x) }>"
      "}");
  const Graph& g = s.graph();
  const NodeId branch = g.producer(g.outputs[0]);
  const SubgraphPath yes = {{branch, "then_branch"}}, no = {{branch, "else_branch"}};
  const Graph& then = subgraph_at(g, yes);
  SubgraphPath body = yes;
  body.push_back({then.producer(then.outputs[0]), "body"});
  const ValueId w = subgraph_at(g, body).outputs[1], q = subgraph_at(g, no).outputs[0];
  std::vector<float> seen;
  int other = 0;
  s.watch(body, w, [&](ValueId id, const TensorView& view) {
    EXPECT_EQ(id, w);
    seen.push_back(view.as<float>()[0]);
  });
  s.watch(no, q, [&](ValueId, const TensorView&) { ++other; });
  s.run({flag(true), row({1, 2})});
  EXPECT_EQ(seen, (std::vector<float>{2, 3, 4, 5}));
  EXPECT_EQ(other, 0);  // a branch that was never taken
  std::int64_t adds = 0;
  for (const Session::Profile& row : s.profile())
    if (row.kernel.rfind("Add", 0) == 0) {
      adds += row.runs;
      EXPECT_EQ(row.path, body);
    }
  EXPECT_EQ(adds, 4);
  EXPECT_NE(s.kernel_of(body, subgraph_at(g, body).producer(w)), "");
  s.clear_watchers();
  s.run({flag(false), row({1, 2})});
  EXPECT_EQ(seen.size(), 4U);
  EXPECT_EQ(other, 0);
}

// Shape -> Gather -> Concat -> Reshape inside a branch: shapes are known before the run.
TEST_F(ControlFlow, ShapesAreInferredInside) {
  Session& s = session(
      "g (bool c, float[B, 2, 3] x) => (float[P, Q] y) {"
      "  y = If (c) <then_branch = t () => (float[R, S] p) <int64 zero = {0}, int64[1] six = {6}, int64[1] "
      "ax = {0}> {"
      "      s = Shape(x) b = Gather(s, zero) b1 = Unsqueeze(b, ax) to = Concat <axis = 0> (b1, six)"
      "      p = Reshape(x, to) },"
      "    else_branch = f () => (float[T, U] q) <int64[2] flat = {-1, 6}> { q = Reshape(x, flat) }>"
      "}");
  const Graph& g = s.graph();
  const NodeId branch = g.producer(g.outputs[0]);
  const Graph& then = subgraph_at(g, {{branch, "then_branch"}});
  EXPECT_EQ(to_string(then.value(then.outputs[0]).shape), "[B,6]");
  EXPECT_EQ(to_string(g.value(g.outputs[0]).shape), "[B,6]");
  EXPECT_EQ(s.run({flag(true), floats({2, 2, 3}, std::vector<float>(12))})[0].dims(), (Dims{2, 6}));
  EXPECT_EQ(s.run({flag(true), floats({0, 2, 3}, {})})[0].dims(), (Dims{0, 6}));
}

// Sizes computed outside of a body and captured by it are known inside, as numbers and as symbols.
TEST_F(ControlFlow, SizesFollowIntoBodies) {
  Session& s = session(
      "g (bool c, int64 m, float[B, 2, 3] x) => (float[P, Q] y, float[R, S] z)"
      "  <int64 zero = {0}, int64[1] six = {6}, int64[1] ax = {0}, bool yes = {1}> {"
      "  s = Shape(x) b = Gather(s, zero) b1 = Unsqueeze(b, ax) to = Concat <axis = 0> (b1, six)"
      "  y = If (c) <then_branch = t () => (float[T, U] p) { p = Reshape(x, to) },"
      "              else_branch = f () => (float[V, W] q) { n = Neg(x) q = Reshape(n, to) }>"
      "  z = Loop (m, yes, y) <body = l (int64 i, bool ci, float[D, E] v) => (bool co, float[F, G] w) {"
      "        co = Identity(ci) r = Reshape(x, to) w = Add(r, r) }> }");
  const Graph& g = s.graph();
  EXPECT_EQ(to_string(g.value(g.outputs[0]).shape), "[B,6]");
  const Graph& body = subgraph_at(g, {{g.producer(g.outputs[1]), "body"}});
  EXPECT_EQ(to_string(body.value(body.outputs[1]).shape), "[B,6]");
  const Tensor x = floats({2, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  EXPECT_EQ(values(s.run({flag(false), whole(0), x})[1])[1], -2);
  EXPECT_EQ(values(s.run({flag(false), whole(3), x})[1])[1], 4);
}

// What is constant outside is constant inside, at any depth.
TEST_F(ControlFlow, ConstantsArePulledIn) {
  Graph g = text_graph(21,
                       "g (bool c, float[2] x) => (float[2] y) {"
                       "  w = Constant <value = float[2] {3, 4}> ()"
                       "  y = If (c) <then_branch = t () => (float[2] p) {"
                       "      p = If (c) <then_branch = t2 () => (float[2] p2) { p2 = Add(x, w) },"
                       "                  else_branch = f2 () => (float[2] q2) { q2 = Sub(x, w) }> },"
                       "    else_branch = f () => (float[2] q) { q = Mul(x, w) }>"
                       "}");
  const NodeId node = g.producer(g.outputs[0]);
  const auto fed = [&](bool c) {
    SessionOptions options;
    options.pool = &pool_;
    return values(Session(std::make_shared<Graph>(g), options).run({flag(c), row({1, 1})})[0]);
  };
  // The reader shares constants already; make them captured ones.
  Graph& branch = own_subgraph_at(g, {{node, "else_branch"}});
  const ValueId inner = branch.find_value("w");
  ASSERT_NE(inner, ValueId::kNone);
  const ValueId outer = g.add_constant("w_outside", branch.value(inner).constant);
  branch.value(inner).constant = Tensor();
  const auto slot = static_cast<int>(g.node(node).in.size());
  if (g.node(node).declared_inputs < 0) g.node(node).declared_inputs = slot;
  g.set_input(node, slot, outer);
  branch.captures.push_back({slot, inner});
  verify(g);
  EXPECT_EQ(fed(false), (std::vector<float>{3, 4}));
  EXPECT_EQ(pull_in_constants(g), 1);
  verify(g);
  EXPECT_TRUE(subgraph_at(g, {{node, "else_branch"}}).is_constant(inner));
  EXPECT_EQ(fed(false), (std::vector<float>{3, 4}));
  EXPECT_EQ(fed(true), (std::vector<float>{4, 5}));
  EXPECT_EQ(to_string(g, {{node, "else_branch"}}), "y.else_branch");
}

// An operator that no kernel takes runs by its body, in a branch as well.
TEST_F(ControlFlow, FunctionBodiesStandInForKernels) {
  Graph g = text_graph(21,
                       "g (bool c, float[N] x) => (float[M] y) {"
                       "  y = If (c) <then_branch = t () => (float[N] p) { p = Neg(x) },"
                       "    else_branch = f () => (float[N] q) { q = Relu(x) }> }");
  const NodeId branch = g.producer(g.outputs[0]);
  Graph& then = own_subgraph_at(g, {{branch, "then_branch"}});
  Node& node = then.node(then.producer(then.outputs[0]));
  node.domain = "somewhere";
  node.op = "Thrice";
  node.attrs["how"] = 1.5F;
  auto body = std::make_shared<Graph>(
      text_graph(21, "g (float[K] a) => (float[K] b) { t = Add(a, a) b = Add(t, a) }"));
  body->name = fallback_signature(node);
  node.fallback = body;
  verify(g);
  SessionOptions options;
  options.pool = &pool_;
  options.profile = true;
  Session s(std::make_shared<Graph>(g), options);
  for (int round = 0; round < 2; ++round)
    EXPECT_EQ(values(s.run({flag(true), row({1, -2})})[0]), (std::vector<float>{3, -6}));
  bool told = false;
  for (const Session::Profile& row : s.profile()) told = told || row.kernel == "Thrice/function body";
  EXPECT_TRUE(told);
  // A node that a pass has changed is not what its body computes any more.
  EXPECT_TRUE(has_valid_fallback(node));
  node.attrs["how"] = 2.5F;
  EXPECT_FALSE(has_valid_fallback(node));
  Session changed(std::make_shared<Graph>(g), options);
  EXPECT_NE(error_of(changed, {flag(true), row({1})}).find("is not known"), std::string::npos);
}

// The reader asks kernels for each node; what none takes and ONNX defines by a function gets the body.
TEST_F(ControlFlow, BodiesAreAttachedWhereKernelsDecline) {
  Graph g = text_graph(21, "g (float[N] x) => (float[N] y, float[N] z) { y = Softplus(x) z = Exp(x) }");
  EXPECT_EQ(attach_fallbacks(g), 0);  // kernels take float32
  for (const char* name : {"x", "y", "z"}) g.value(g.find_value(name)).dtype = DType::kE5M2;
  EXPECT_EQ(attach_fallbacks(g), 1);  // Exp has no body
  const Node& node = g.node(g.producer(g.outputs[0]));
  ASSERT_TRUE(has_valid_fallback(node));
  EXPECT_EQ(node.fallback->inputs.size(), 1U);
  EXPECT_EQ(node.fallback->outputs.size(), 1U);
}

// Operators that the IR does not know are replaced by their bodies when the file is read; in branches, too.
TEST_F(ControlFlow, FunctionsInsideBranchesAreInlined) {
  Session& s = session(
      "g (bool c, int64 n) => (float[N] y) {"
      "  y = If (c) <then_branch = t () => (float[M] p) { p = HannWindow <periodic = 0> (n) },"
      "    else_branch = f () => (float[K] q) { q = HammingWindow <periodic = 0> (n) }> }");
  const std::vector<float> hann = values(s.run({flag(true), whole(5)})[0]),
                           hamming = values(s.run({flag(false), whole(5)})[0]);
  ASSERT_EQ(hann.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    const double wave = std::cos(2 * 3.14159265358979 * static_cast<double>(i) / 4);
    EXPECT_NEAR(hann[i], 0.5 - 0.5 * wave, 1e-6);
    EXPECT_NEAR(hamming[i], 25.0 / 46 - 21.0 / 46 * wave, 1e-6);
  }
}

// What a damaged file may hold, and inference lets pass: said, not crashed over.
TEST_F(ControlFlow, MissingInputsAndValuesAreErrors) {
  Graph g = text_graph(21,
                       "g (bool c, float[2] x) => (float[2] y) {"
                       "  y = If (c) <then_branch = t () => (float[2] p) { p = Neg(x) },"
                       "    else_branch = f () => (float[2] q) { q = Relu(x) }> }");
  g.set_input(g.producer(g.outputs[0]), 0, ValueId::kNone);
  SessionOptions options;
  options.pool = &pool_;
  Session damaged(std::make_shared<Graph>(g), options);
  EXPECT_EQ(error_of(damaged, {flag(true), row({1, 2})}), "input 0 is missing");
  // One branch gives a tensor, the other an optional without a value.
  Session& s = session(
      "g (bool c, float[2] x) => (float[2] y) {"
      "  z = If (c) <then_branch = t () => (float[2] p) { p = Neg(x) },"
      "    else_branch = f () => (optional(float[2]) q) { q = Optional <type = float[2]> () }>"
      "  y = Add(z, x) }");
  EXPECT_EQ(values(s.run({flag(true), row({1, 2})})[0]), (std::vector<float>{0, 0}));
  EXPECT_NE(error_of(s, {flag(false), row({1, 2})}).find("is no tensor"), std::string::npos);
  EXPECT_EQ(values(s.run({flag(true), row({1, 2})})[0]), (std::vector<float>{0, 0}));
}

}  // namespace
}  // namespace pare
