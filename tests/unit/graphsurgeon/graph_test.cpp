// The hash of a graph, the summary for inspect, and the self-check of simplify.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "graphsurgeon/graph_hash.h"
#include "graphsurgeon/inspect.h"
#include "graphsurgeon/onnx/proto.h"
#include "graphsurgeon/onnx/write.h"
#include "graphsurgeon/self_check.h"
#include "graphsurgeon/simplify.h"
#include "tests/unit/graphsurgeon/models.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare {
namespace {

std::string hash_of(const std::string& text) { return hex(graph_hash(text_graph(17, text))); }

TEST(GraphHash, DoesNotKnowHowTheFileWasWritten) {
  const std::string initializer =
      hash_of("g (float[2] x) => (float[2] y) <float[2] w = {1,2}> { y = Add(x, w) }");
  EXPECT_EQ(initializer, hash_of("other (float[2] x) => (float[2] y) { w = Constant <value_floats = [1.0, "
                                 "2.0]> () [named] y = Add(x, w) }"))
      << "Constant nodes, names of nodes and of the graph";
  EXPECT_EQ(initializer, hex(graph_hash(text_graph(
                             21, "g (float[2] x) => (float[2] y) <float[2] w = {1,2}> { y = Add(x, w) }"))))
      << "opset";
}

TEST(GraphHash, SeesEveryPart) {
  std::vector<std::string> hashes;
  for (const char* text :
       {"g (float[2] x) => (float[2] y) <float[2] w = {1,2}> { y = Add(x, w) }",
        "g (float[2] x) => (float[2] y) <float[2] w = {1,3}> { y = Add(x, w) }",
        "g (float[2] x) => (float[2] y) <float[1,2] w = {1,2}> { z = Add(x, w) y = Relu(z) }",
        "g (float[2] x) => (float[2] y) <float[2] w = {1,2}> { y = Mul(x, w) }",
        "g (float[2] x) => (float[2] y) <float[2] w = {1,2}> { y = Add(w, x) }",
        "g (float[2] z) => (float[2] y) <float[2] w = {1,2}> { y = Add(z, w) }",
        "g (float[N] x) => (float[P] y) <float[1] w = {1}> { y = Add(x, w) }",
        "g (float[2] x) => (float[2] y) { y = Elu <alpha = 1.0> (x) }",
        "g (float[2] x) => (float[2] y) { y = Elu <alpha = 1.5> (x) }",
        "g (float[2] x) => (float[2] y, float[2] z) { y = Relu(x) z = Abs(x) }",
        "g (float[2] x) => (float[2] z, float[2] y) { y = Relu(x) z = Abs(x) }"})
    hashes.push_back(hash_of(text));
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::unique(hashes.begin(), hashes.end()), hashes.end());
}

TEST(Inspect, CountsTheFashionModel) {
  const ModelSummary s = inspect_model(real_models()[0]);
  EXPECT_EQ(s.format, "onnx");
  EXPECT_EQ(s.opset, 17);
  EXPECT_EQ(s.ir_version, 8);
  EXPECT_EQ(s.nodes, 71);
  EXPECT_EQ(s.ops.at("Conv"), 20);
  EXPECT_EQ(s.ops.at("BatchNormalization"), 20);
  EXPECT_EQ(s.parameters * 4, s.weight_bytes);
  EXPECT_GT(s.parameters, 2'700'000);
  EXPECT_LT(s.parameters, 2'900'000);
  ASSERT_EQ(s.inputs.size(), 1u);
  EXPECT_EQ(s.inputs[0].name, "image");
  EXPECT_EQ(s.inputs[0].shape.rank(), 4);
  EXPECT_EQ(s.subgraphs, 0);
  EXPECT_EQ(s.layers.size(), 71u);
}

SelfCheckReport check(const std::string& a, const std::string& b) {
  ThreadPool pool(1);
  return compare_on_generated(text_graph(17, a), text_graph(17, b), {}, pool);
}

TEST(SelfCheck, EqualGraphs) {
  const SelfCheckReport r = check("g (float[N,3] x) => (float[N,3] y) { y = Relu(x) }",
                                  "g (float[N,3] x) => (float[N,3] y) { a = Relu(x) y = Relu(a) }");
  EXPECT_TRUE(r.done) << r.why_not;
  EXPECT_TRUE(r.passed) << r.failure;
  EXPECT_EQ(r.max_abs_diff, 0);
  EXPECT_EQ(r.runs, 2) << "batches of 1 and 2";
}

TEST(SelfCheck, SeesADifference) {
  const SelfCheckReport r =
      check("g (float[N,64] x) => (float[N,64] y) { y = Relu(x) }",
            "g (float[N,64] x) => (float[N,64] y) { y = LeakyRelu <alpha = 0.01> (x) }");
  EXPECT_FALSE(r.passed);
  EXPECT_GT(r.max_abs_diff, 1e-3);
  EXPECT_NE(r.failure.find("output 'y'"), std::string::npos) << r.failure;
}

// Token ids that are all zero would not see which rows a Gather takes (daquexian/onnx-simplifier's check).
TEST(SelfCheck, IndicesReachEveryRow) {
  const char* taken = R"(g (int64[64] ids) => (float[64] y) <float[4] t = {1,2,3,4}> { y = Gather(t, ids) })";
  for (const char* other : {"{9,2,3,4}", "{1,9,3,4}", "{1,2,9,4}", "{1,2,3,9}"}) {
    std::string text = taken;
    text.replace(text.find("{1,2,3,4}"), 9, other);
    EXPECT_FALSE(check(taken, text).passed) << other;
  }
  EXPECT_TRUE(check(taken, taken).passed);
}

TEST(SelfCheck, SaysWhenTheModelCannotBeRun) {
  const SelfCheckReport r = check("g (complex64[2] x) => (complex64[2] y) { y = Identity(x) }",
                                  "g (complex64[2] x) => (complex64[2] y) { y = Identity(x) }");
  EXPECT_FALSE(r.done);
  EXPECT_FALSE(r.why_not.empty());
}

TEST(Simplify, LeavesTheGraphAloneWhenTheCheckFails) {
  // The reciprocal of a variance of 0 plus a tiny epsilon: nothing to fold wrongly here, so the check is made
  // strict.
  Graph graph = text_graph(17, R"(g (float[N,1,4,4] x) => (float[N,2,4,4] y) <float[2,1,3,3] w = {
      0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,0.11,0.12,0.13,0.14,0.15,0.16,0.17,0.18,0.19},
      float[2] p = {0.3,0.7}> { c = Conv <pads = [1,1,1,1]> (x, w) y = BatchNormalization(c, p, p, p, p) })");
  const std::string before = to_text(graph);
  SimplifyOptions options;
  options.check.relative = 0;
  options.check.absolute = 0;
  try {
    simplify(graph, options);
    FAIL() << "folding in another order of rounding gave the same bits";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedGate);
    EXPECT_NE(std::string(error.what()).find("output 'y'"), std::string::npos) << error.what();
  }
  EXPECT_EQ(to_text(graph), before);
  EXPECT_EQ(simplify(graph).nodes_after, 1);
}

}  // namespace
}  // namespace pare
