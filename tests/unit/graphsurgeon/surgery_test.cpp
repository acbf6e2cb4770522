// The verbs of `pare surgeon` on small graphs: extract, prune, set-shape, rename, bisect.
#include <gtest/gtest.h>

#include <memory>

#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/run/session.h"
#include "graphsurgeon/onnx/write.h"
#include "graphsurgeon/passes/passes.h"
#include "graphsurgeon/simplify.h"
#include "graphsurgeon/verbs/bisect.h"
#include "graphsurgeon/verbs/extract.h"
#include "graphsurgeon/verbs/rename.h"
#include "graphsurgeon/verbs/set_shape.h"
#include "tests/unit/errors.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare {
namespace {

constexpr const char* kChain =
    R"(g (float[N,2] x, float[N,2] u) => (float[N,2] y, float[N,2] z) <float[2,2] w = {1,2,3,4}> {
    a = Relu(x) b = MatMul(a, w) c = Add(b, u) y = Exp(c) z = Neg(a) })";

// --- extract

TEST(Extract, CutsAtInnerValues) {
  Graph graph = text_graph(17, kChain);
  const ExtractReport report = extract(graph, {{"a", "u"}, {"c"}});
  EXPECT_EQ(report.nodes_before, 5);
  EXPECT_EQ(report.nodes_after, 2);
  EXPECT_EQ(report.dropped_inputs, std::vector<std::string>{"x"});
  EXPECT_EQ(canonical_text(graph), canonical_text(text_graph(17, R"(
      g (float[N,2] a, float[N,2] u) => (float[N,2] c) <float[2,2] w = {1,2,3,4}> { b = MatMul(a, w) c = Add(b, u) })")));
  EXPECT_NO_THROW(onnx_bytes(graph));  // the checker reads it
}

TEST(Extract, KeepsTheInputsThatTheOutputsNeed) {
  Graph graph = text_graph(17, kChain);
  EXPECT_EQ(extract(graph, {{}, {"b"}}).dropped_inputs, std::vector<std::string>{"u"});
  EXPECT_EQ(graph.inputs.size(), 1u);
}

TEST(Extract, MakesAnInputOfAWeight) {
  Graph graph = text_graph(17, kChain);
  extract(graph, {{"a", "w"}, {"b"}});
  EXPECT_EQ(canonical_text(graph),
            canonical_text(
                text_graph(17, "g (float[N,2] a, float[2,2] w) => (float[N,2] b) { b = MatMul(a, w) }")));
}

TEST(Extract, OneOfTwoOutputsOfANode) {
  Graph graph = text_graph(18, R"(g (float[4] x) => (float[2] y) <int64[2] s = {2,2}> {
      a, b = Split(x, s) c = Relu(a) d = Add(c, b) y = Neg(d) })");
  extract(graph, {{"a", "x"}, {"d"}});
  EXPECT_EQ(graph.inputs.size(), 2u);
  EXPECT_EQ(graph.node_count(), 3u);
  EXPECT_NO_THROW(onnx_bytes(graph));
}

TEST(Extract, SaysWhatIsWrong) {
  struct {
    ExtractOptions options;
    const char* message;
  } const cases[] = {
      {{{"a"}, {"c"}}, "also need the input 'u'"},
      {{{"q"}, {"c"}}, "no value 'q'"},
      {{{}, {"x"}}, "is an input"},
      {{{}, {"w"}}, "is a constant"},
      {{{"a", "a"}, {"b"}}, "named twice"},
      {{{"b", "u"}, {"b"}}, "is an input"},
  };
  for (const auto& c : cases) {
    Graph graph = text_graph(17, kChain);
    const std::string before = to_text(graph);
    const Error error = thrown_by([&] { extract(graph, c.options); });
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_NE(std::string(error.what()).find(c.message), std::string::npos) << error.what();
    EXPECT_EQ(to_text(graph), before);
  }
}

// What a branch captures counts as read.
TEST(Extract, LooksIntoBranches) {
  Graph graph = text_graph(17, R"(g (bool c, float[2] x) => (float[2] y) {
      u = Exp(x) v = Neg(x) w = Abs(x)
      y = If (c) <then_branch = t () => (float[2] a) { a = Relu(u) }, else_branch = e () => (float[2] b) { b = Abs(v) }> })");
  const ExtractReport report = extract(graph, {{"c", "u", "v"}, {}});
  EXPECT_EQ(report.nodes_after, 3);
  EXPECT_EQ(report.dropped_inputs, std::vector<std::string>{"x"});
  EXPECT_NO_THROW(onnx_bytes(graph));
}

// --- prune

TEST(Prune, DropsAnOutputAndWhatOnlyItNeeds) {
  Graph graph = text_graph(17, kChain);
  PruneOptions options;
  options.drop_outputs = {"y"};
  const PruneReport report = prune(graph, options);
  EXPECT_EQ(report.dropped_inputs, std::vector<std::string>{"u"});
  EXPECT_EQ(canonical_text(graph),
            canonical_text(text_graph(17, "g (float[N,2] x) => (float[N,2] z) { a = Relu(x) z = Neg(a) }")));
}

TEST(Prune, KeepsInputsWhenAsked) {
  Graph graph = text_graph(17, kChain);
  PruneOptions options;
  options.keep_outputs = {"z"};
  options.keep_inputs = true;
  EXPECT_EQ(prune(graph, options).dropped_outputs, std::vector<std::string>{"y"});
  EXPECT_EQ(graph.inputs.size(), 2u);
}

TEST(Prune, RefusesNoOutputs) {
  Graph graph = text_graph(17, kChain);
  PruneOptions options;
  options.drop_outputs = {"y", "z"};
  EXPECT_EQ(thrown_by([&] { prune(graph, options); }).code(), ErrorCode::kUsage);
  options.drop_outputs = {"a"};
  EXPECT_NE(thrown_by([&] { prune(graph, options); }).hint().find("'y', 'z'"), std::string::npos);
}

// --- set-shape

TEST(SetShape, ASymbolBecomesANumberEverywhere) {
  Graph graph = text_graph(17, kChain);
  SetShapeOptions options;
  options.symbols = {{"N", Dim::of(3)}};
  EXPECT_GE(set_shapes(graph, options).changed_values, 7);
  for (const ValueId id : {graph.inputs[0], graph.inputs[1], graph.outputs[0], graph.outputs[1]})
    EXPECT_EQ(to_string(graph.value(id).shape), "[3,2]");
}

TEST(SetShape, AnInputTakesTheOthersWithIt) {
  Graph graph = text_graph(17, kChain);
  SetShapeOptions options;
  options.inputs = {{"x", parse_dims("batch,2")}};
  set_shapes(graph, options);
  EXPECT_EQ(to_string(graph.value(graph.inputs[1]).shape), "[batch,2]");
  EXPECT_EQ(to_string(graph.value(graph.outputs[0]).shape), "[batch,2]");
}

TEST(SetShape, NumbersBecomeOtherNumbers) {
  Graph graph = text_graph(
      17, R"(g (float[1,3,8,8] x) => (float[1,1,8,8] y) <float[1,3,1,1] w = {1,2,3}> { y = Conv(x, w) })");
  SetShapeOptions options;
  options.inputs = {{"x", parse_dims("4x3x16x20")}};
  set_shapes(graph, options);
  EXPECT_EQ(to_string(graph.value(graph.outputs[0]).shape), "[4,1,16,20]");
}

TEST(SetShape, ShapesOfBranchesFollow) {
  Graph graph = text_graph(17, R"(g (bool c, float[2,2] x) => (float[2,2] y) {
      y = If (c) <then_branch = t () => (float[2,2] a) { a = Relu(x) }, else_branch = e () => (float[2,2] b) { b = Abs(x) }> })");
  SetShapeOptions options;
  options.inputs = {{"x", parse_dims("[n, 2]")}};
  set_shapes(graph, options);
  EXPECT_EQ(to_string(graph.value(graph.outputs[0]).shape), "[n,2]");
}

TEST(SetShape, SaysContradictions) {
  const auto refused = [](const SetShapeOptions& options) {
    Graph graph = text_graph(17, kChain);
    const std::string before = to_text(graph);
    const Error error = thrown_by([&] { set_shapes(graph, options); });
    EXPECT_EQ(error.code(), ErrorCode::kUsage) << error.what();
    EXPECT_EQ(to_text(graph), before);
    return std::string(error.what());
  };
  SetShapeOptions o;
  o.inputs = {{"x", parse_dims("3,5")}};
  EXPECT_NE(refused(o).find("do not fit the model"), std::string::npos) << "a matrix of 2 rows";
  o.inputs = {{"x", parse_dims("3,2")}, {"u", parse_dims("4,2")}};
  EXPECT_NE(refused(o).find("both 3 and 4"), std::string::npos);
  o.inputs = {{"x", parse_dims("3,2,1")}};
  EXPECT_NE(refused(o).find("has 2 sizes, not 3"), std::string::npos);
  o.inputs = {{"a", parse_dims("3,2")}};
  EXPECT_NE(refused(o).find("not an input"), std::string::npos);
  o.inputs = {};
  o.symbols = {{"M", Dim::of(3)}};
  EXPECT_NE(refused(o).find("no input has a size named 'M'"), std::string::npos);
}

TEST(SetShape, ReadsSizes) {
  EXPECT_EQ(to_string(Shape(parse_dims("1x3x224"))), "[1,3,224]");
  EXPECT_EQ(to_string(Shape(parse_dims("batch,3,max_len"))), "[batch,3,max_len]");
  EXPECT_EQ(to_string(Shape(parse_dims("[n, ?]"))), "[n,?]");
  EXPECT_EQ(to_string(Shape(parse_dims("[box]"))), "[box]");
  EXPECT_EQ(to_string(Shape(parse_dims("7"))), "[7]");
  EXPECT_TRUE(parse_dims("").empty());
  for (const char* text : {"1,", "x", "1xx2", "-1,2", "2a,3", "1 2", "99999999999999999999"})
    EXPECT_EQ(thrown_by([&] { parse_dims(text); }).code(), ErrorCode::kUsage) << text;
}

// --- rename

TEST(Rename, ValuesInputsOutputsAndNodes) {
  Graph graph = text_graph(17, kChain);
  const auto renamed = rename(
      graph, {parse_renaming(RenameWhat::kInput, "x=image"), parse_renaming(RenameWhat::kOutput, "y=scores"),
              parse_renaming(RenameWhat::kValue, "re:([abc])=inner_$1")});
  EXPECT_EQ(renamed.size(), 5u);
  EXPECT_EQ(graph.value(graph.inputs[0]).name, "image");
  EXPECT_EQ(graph.value(graph.outputs[0]).name, "scores");
  EXPECT_NE(graph.find_value("inner_b"), ValueId::kNone);
  EXPECT_EQ(graph.find_value("b"), ValueId::kNone);
}

TEST(Rename, TwoNamesSwap) {
  Graph graph = text_graph(17, kChain);
  const ValueId x = graph.inputs[0];
  rename(graph, {parse_renaming(RenameWhat::kValue, "x=u"), parse_renaming(RenameWhat::kValue, "u=x")});
  EXPECT_EQ(graph.value(x).name, "u");
  EXPECT_EQ(graph.value(graph.inputs[1]).name, "x");
}

TEST(Rename, InBranchesToo) {
  Graph graph = text_graph(17, R"(g (bool c, float[2] x) => (float[2] y) {
      y = If (c) <then_branch = t () => (float[2] a) { i = Exp(x) a = Relu(i) }, else_branch = e () => (float[2] b) { i = Neg(x) b = Abs(i) }> })");
  const auto renamed = rename(
      graph, {parse_renaming(RenameWhat::kValue, "i=inner"), parse_renaming(RenameWhat::kValue, "x=image")});
  EXPECT_EQ(renamed.size(), 3u)
      << "the branches are apart, so both may have an 'inner'; the capture is no value of its own";
  EXPECT_NO_THROW(onnx_bytes(graph));
}

TEST(Rename, SaysWhatIsWrong) {
  struct {
    RenameWhat what;
    const char* text;
    const char* message;
  } const cases[] = {
      {RenameWhat::kValue, "x=u", "two values would be named 'u'"},
      {RenameWhat::kValue, "re:[ab]=same", "two values would be named 'same'"},
      {RenameWhat::kValue, "nothing=u2", "no value named 'nothing'"},
      {RenameWhat::kInput, "a=b2", "no input named 'a'"},
      {RenameWhat::kValue, "re:(=b", "no regular expression"},
      {RenameWhat::kValue, "x=", "would have no name"},
      {RenameWhat::kNode, "re:zzz=b", "no node that fits 're:zzz'"},
  };
  for (const auto& c : cases) {
    Graph graph = text_graph(17, kChain);
    const std::string before = to_text(graph);
    const Error error = thrown_by([&] { rename(graph, {parse_renaming(c.what, c.text)}); });
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_NE(std::string(error.what()).find(c.message), std::string::npos) << error.what();
    EXPECT_EQ(to_text(graph), before);
  }
  EXPECT_EQ(thrown_by([] { parse_renaming(RenameWhat::kValue, "x"); }).code(), ErrorCode::kUsage);
}

// --- bisect

// Takes every Relu for an Abs: right where nothing is negative.
int mistake(Graph& graph, PassContext& context) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    if (!graph.node(id).is("Relu")) continue;
    if (!context.may_change(graph, id)) break;
    graph.node(id).op = "Abs";
    ++count;
  }
  return count;
}
const Pass kMistake = {"mistake", "is wrong now and then", mistake};

TEST(Bisect, FindsThePassAndTheChange) {
  Graph graph = text_graph(17, R"(g (float[64] x) => (float[64] y) {
      a = Identity(x) b = Exp(a) c = Relu(b) d = Log(c) e = Relu(d) f = Relu(e) y = Neg(f) })");
  const Pass* const list[] = {&kRemoveIdentity, &kMistake, &kRemoveDeadCode};
  ThreadPool pool(1);
  const BisectReport report = bisect_passes(graph, list, {}, {}, pool);
  ASSERT_TRUE(report.checked) << report.why_not;
  ASSERT_TRUE(report.found);
  EXPECT_EQ(report.pass, "mistake");
  EXPECT_EQ(report.change, 3) << "the Identity and the first Relu are right";
  EXPECT_EQ(report.what, "Relu 'e'");
  EXPECT_NE(report.failure.find("output 'y'"), std::string::npos);
}

TEST(Bisect, FindsNothingWhereNothingIsWrong) {
  Graph graph = text_graph(17, "g (float[8] x) => (float[8] y) { a = Identity(x) y = Neg(a) }");
  ThreadPool pool(1);
  const BisectReport report = bisect_passes(graph, simplify_passes(), {}, {}, pool);
  EXPECT_TRUE(report.checked);
  EXPECT_FALSE(report.found);
  EXPECT_EQ(report.changes, 1);
}

// A run that stops after n changes has made the first n of the whole run.
TEST(RunPasses, StopsAfterSoManyChanges) {
  const char* text =
      "g (float[2] x) => (float[2] y) { a = Identity(x) b = Identity(a) c = Identity(b) y = Neg(c) }";
  for (std::int64_t n = 0; n <= 3; ++n) {
    Graph graph = text_graph(17, text);
    RunPassesOptions options;
    options.context.changes_left = n;
    PassContext left;
    run_passes(graph, simplify_passes(), options, &left);
    EXPECT_EQ(static_cast<std::int64_t>(graph.node_count()), 4 - n);
    EXPECT_EQ(left.changes, n);
  }
}

// Ctrl-C while outputs are compared is the user's wish, no finding about the model.
TEST(RunPasses, InterruptionIsNoFinding) {
  const Graph graph = text_graph(21, "g (float[2] x) => (float[2] y) { a = Relu(x) y = Identity(a) }");
  ThreadPool pool(1);
  SimplifyOptions options;
  options.pool = &pool;
  request_cancel();
  try {
    Graph copy = graph;
    simplify(copy, options);
    ADD_FAILURE() << "went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInterrupted) << error.what();
  }
  clear_cancel();
}

}  // namespace
}  // namespace pare
