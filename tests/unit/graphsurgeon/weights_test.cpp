// The verbs that touch weights: convert-precision, strip-weights and restore-weights, diff; and safetensors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/run/session.h"
#include "graphsurgeon/checkpoint/safetensors.h"
#include "graphsurgeon/generated_inputs.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/onnx/write.h"
#include "graphsurgeon/verbs/convert_precision.h"
#include "graphsurgeon/verbs/model_diff.h"
#include "graphsurgeon/verbs/weights_apart.h"
#include "tests/unit/errors.h"
#include "tests/unit/graphsurgeon/models.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare {
namespace {

int count(const Graph& graph, const char* op) {
  int n = 0;
  walk_graphs(graph, [&](const SubgraphPath&, const Graph& scope) {
    for (const NodeId id : scope.nodes()) n += scope.node(id).is(op);
  });
  return n;
}

// --- convert-precision

constexpr const char* kNet =
    R"(g (float[N,2] x) => (float[N,2] y) <float[2,2] w = {1,2,3,4}, float[2] b = {1,1}> {
    a = MatMul(x, w) c = Add(a, b) d = Relu(c) e = MatMul(d, w) y = Softmax(e) })";

TEST(ConvertPrecision, CastsStandAtTheEndsOnly) {
  Graph graph = text_graph(21, kNet);
  const ConvertPrecisionReport report = convert_precision(graph, {}, {});
  EXPECT_EQ(report.converted, 5);
  EXPECT_TRUE(report.kept.empty());
  EXPECT_EQ(report.casts, 2);
  EXPECT_EQ(count(graph, "Cast"), 2);
  EXPECT_EQ(report.weight_bytes_before, 24);
  EXPECT_EQ(report.weight_bytes_after, 12);
  EXPECT_EQ(graph.value(graph.inputs[0]).dtype, DType::kF32);
  EXPECT_EQ(graph.value(graph.outputs[0]).dtype, DType::kF32);
  EXPECT_EQ(graph.value(graph.outputs[0]).name, "y");
  EXPECT_NO_THROW(onnx_bytes(graph));
}

TEST(ConvertPrecision, InputsAndOutputsToo) {
  Graph graph = text_graph(21, kNet);
  ConvertPrecisionOptions options;
  options.keep_io = false;
  EXPECT_EQ(convert_precision(graph, options, {}).casts, 0);
  EXPECT_EQ(graph.value(graph.inputs[0]).dtype, DType::kF16);
  EXPECT_EQ(graph.value(graph.outputs[0]).dtype, DType::kF16);
}

TEST(ConvertPrecision, BlockedAndExcludedStayFloat) {
  Graph graph = text_graph(21, kNet);
  ConvertPrecisionOptions options;
  options.blocked = {"Softmax"};
  const ConvertPrecisionReport report = convert_precision(graph, options, {});
  EXPECT_EQ(report.converted, 4);
  ASSERT_EQ(report.kept.size(), 1u);
  EXPECT_EQ(report.kept[0].why, "blocked operator");
  EXPECT_EQ(report.casts, 2) << "in front of Softmax instead of behind it";
  options.blocked = {"Softmaxx"};
  EXPECT_NE(thrown_by([&] { convert_precision(graph, options, {}); }).hint().find("Softmax"),
            std::string::npos);
  options.blocked.clear();
  options.exclude = {"nobody"};
  EXPECT_EQ(thrown_by([&] { convert_precision(graph, options, {}); }).code(), ErrorCode::kUsage);
}

TEST(ConvertPrecision, WhatOverflowsStaysFloat) {
  const char* text =
      R"(g (float[4] x) => (float[4] y) <float[4] k = {1000,1000,1000,1000}, float[4] s = {0.001,0.001,0.001,0.001}> {
      a = Mul(x, k) b = Mul(a, a) c = Sqrt(b) d = Mul(c, s) y = Exp(d) })";
  Graph graph = text_graph(21, text);
  ThreadPool pool(1);
  RangeMeter meter(std::make_shared<const Graph>(graph), pool);
  const std::vector<Tensor> inputs = {Tensor::from(DType::kF32, {4}, std::vector<float>{1, 2, -3, 0.5f})};
  const std::vector<Tensor> before = meter.run(inputs);
  EXPECT_DOUBLE_EQ(meter.ranges().of({}, graph.find_value("b")), 9e6);
  const ConvertPrecisionReport report = convert_precision(graph, {}, meter.ranges());
  std::vector<std::string> ops;
  for (const KeptNode& node : report.kept) ops.push_back(node.op);
  EXPECT_EQ(std::count(ops.begin(), ops.end(), "Sqrt"), 1);
  SessionOptions options;
  options.pool = &pool;
  const std::vector<Tensor> after = Session(std::make_shared<const Graph>(graph), options).run(inputs);
  // Roundings of 2^-11 in d, of size up to 3: relative 1.5e-3 in exp(d), 56 dB; one bit to spare.
  EXPECT_GT(sqnr_of_outputs(before, after)[0], 50);
}

TEST(ConvertPrecision, ConstantsOutOfRangeAreCounted) {
  const char* text = R"(g (float[2] x) => (float[2] y) <float[2] k = {1e6,1}, float[2] t = {1e-7,1e-9}> {
      a = Mul(x, k) b = Mul(a, t) y = Exp(b) })";
  Graph graph = text_graph(21, text);
  ConvertPrecisionOptions options;
  options.keep_io = false;
  const ConvertPrecisionReport report = convert_precision(graph, options, {});
  EXPECT_EQ(report.out_of_range, 1);
  ASSERT_EQ(report.kept.size(), 1u);
  EXPECT_EQ(report.kept[0].why, "constant 'k' is out of range");
  EXPECT_EQ(report.subnormal, 1) << "1e-7 is 2 steps of 2^-24";
  EXPECT_EQ(report.flushed, 1) << "1e-9 is below half a step";
}

// bfloat16 holds 1e6; most operators have it since opset 13, a few only later.
TEST(ConvertPrecision, BFloat16) {
  Graph graph = text_graph(
      13,
      R"(g (float[1,1,4,4] x) => (float[1,1,4,4] y) <float[1,1,1,1] w = {1e6}> { a = Conv(x, w) y = Relu(a) })");
  ConvertPrecisionOptions options;
  options.to = DType::kBF16;
  const ConvertPrecisionReport report = convert_precision(graph, options, {});
  EXPECT_EQ(report.converted, 2);
  EXPECT_EQ(report.out_of_range, 0);
  EXPECT_EQ(report.min_opset, 22) << "Conv-22";
}

TEST(ConvertPrecision, AnIslandIsNotWorthItsCasts) {
  Graph net = text_graph(
      21,
      R"(g (float[4] x) => (float[4] y) <int64 z = {0}> { a = CumSum(x, z) b = Relu(a) y = CumSum(b, z) })");
  const ConvertPrecisionReport report = convert_precision(net, {}, {});
  EXPECT_EQ(report.casts, 0);
  EXPECT_EQ(report.converted, 0);
}

TEST(ConvertPrecision, BranchesAndLoops) {
  const char* text =
      R"(g (bool c, float[2,2] x) => (float[2,2] y) <int64 n = {3}, bool t = {1}, float[2,2] w = {0.5,0.25,0.125,1}> {
      u = MatMul(x, w)
      v = If (c) <then_branch = p () => (float[2,2] a) { a = MatMul(u, w) }, else_branch = q () => (float[2,2] b) { b = Neg(x) }>
      y = Loop (n, t, v) <body = l (int64 i, bool k, float[2,2] s) => (bool k2, float[2,2] r) { k2 = Identity(k) r = MatMul(s, w) }> })";
  Graph graph = text_graph(21, text);
  const Graph before = graph;
  const ConvertPrecisionReport report = convert_precision(graph, {}, {});
  EXPECT_GE(report.converted, 5);
  verify(graph);
  EXPECT_NO_THROW(onnx_bytes(graph));
  ThreadPool pool(1);
  SessionOptions options;
  options.pool = &pool;
  for (const std::uint8_t condition : {0, 1}) {
    const std::vector<Tensor> inputs = {Tensor::from(DType::kBool, {}, std::vector<std::uint8_t>{condition}),
                                        Tensor::from(DType::kF32, {2, 2}, std::vector<float>{1, 2, 3, 4})};
    const auto x = Session(std::make_shared<const Graph>(before), options).run(inputs);
    const auto y = Session(std::make_shared<const Graph>(graph), options).run(inputs);
    EXPECT_GT(sqnr_of_outputs(x, y)[0], 50) << "five roundings of 2^-11";
  }
}

TEST(ConvertPrecision, RealModelsAgreeWithFloat) {
  ThreadPool pool(2);
  SessionOptions options;
  options.pool = &pool;
  for (const char* name : {"resnet", "mobilenet", "vit"}) {
    Graph graph = load_model(source_path(std::string("examples/fashion/") + name + ".onnx"));
    RangeMeter meter(std::make_shared<const Graph>(graph), pool);
    GeneratedSizes sizes;
    const GeneratedRun run = run_on_generated(meter.session(), sizes, 1);
    ASSERT_TRUE(run.done) << run.why_not;
    const ConvertPrecisionReport report = convert_precision(graph, {}, meter.ranges());
    EXPECT_LE(report.casts, 4) << name;
    const auto half = Session(std::make_shared<const Graph>(graph), options).run(run.inputs);
    EXPECT_GT(sqnr_of_outputs(run.outputs, half)[0], 40) << name;
  }
}

// --- strip-weights, restore-weights

constexpr const char* kTwoBranches =
    R"(g (bool c, float[2,2] x) => (float[2,2] y) <float[2,2] w = {1,2,3,4}> {
    u = MatMul(x, w)
    y = If (c) <then_branch = p () => (float[2,2] a) <float[2,2] k = {5,6,7,8}> { a = MatMul(u, k) },
                else_branch = q () => (float[2,2] b) <float[2,2] k = {9,10,11,12}> { b = MatMul(u, k) }> })";

StripOptions everything() {
  StripOptions options;
  options.min_bytes = 1;
  return options;
}

TEST(StripWeights, OutAndBackIsTheSameGraph) {
  Graph graph = text_graph(17, kTwoBranches);
  const Graph before = graph;
  const auto taken = strip_weights(graph, everything());
  EXPECT_EQ(taken.size(), 3u);
  EXPECT_EQ(graph.inputs.size(), 5u);
  Graph skeleton = read_bytes(onnx_bytes(graph));  // through a file
  EXPECT_EQ(stripped_weights(skeleton).size(), 3u);
  const RestoreReport report = restore_weights(skeleton, taken, true);
  EXPECT_EQ(report.restored, 3);
  EXPECT_EQ(report.changed, 0);
  EXPECT_EQ(skeleton.inputs.size(), 2u);
  DiffOptions options;
  options.ignore_names = true;
  const DiffReport diff = diff_graphs(before, skeleton, options);
  EXPECT_TRUE(diff.same()) << diff.differences[0].kind << " " << diff.differences[0].where;
}

TEST(StripWeights, RefitTakesOtherWeights) {
  Graph graph = text_graph(17, kTwoBranches);
  auto weights = strip_weights(graph, everything());
  weights["w"] = Tensor::from(DType::kF32, {2, 2}, std::vector<float>{4, 3, 2, 1});
  Graph other = graph;
  EXPECT_EQ(restore_weights(other, weights).changed, 1);
  const Error error = thrown_by([&] { restore_weights(graph, weights, true); });
  EXPECT_NE(std::string(error.what()).find("'w' is not the one"), std::string::npos) << error.what();
}

TEST(StripWeights, SaysWhichTensorIsWrong) {
  Graph graph = text_graph(17, kTwoBranches);
  const auto weights = strip_weights(graph, everything());
  const std::string before = to_text(graph);
  const auto refused = [&](std::map<std::string, Tensor> source) {
    const Error error = thrown_by([&] { restore_weights(graph, source); });
    EXPECT_EQ(error.code(), ErrorCode::kBadFile);
    EXPECT_EQ(to_text(graph), before);
    return std::string(error.what());
  };
  auto source = weights;
  source["w"] = Tensor::from(DType::kF32, {4}, std::vector<float>{1, 2, 3, 4});
  EXPECT_NE(refused(source).find("'w' is float32 [4], the model wants float32 [2,2]"), std::string::npos);
  source = weights;
  source.erase("w");
  EXPECT_NE(refused(source).find("no tensor 'w'"), std::string::npos);
  EXPECT_EQ(thrown_by([&] { strip_weights(graph, everything()); }).code(), ErrorCode::kUsage);
  Graph whole = text_graph(17, kTwoBranches);
  EXPECT_EQ(thrown_by([&] { restore_weights(whole, weights); }).code(), ErrorCode::kUsage);
}

// --- diff

TEST(Diff, TheSameIsTheSame) {
  const Graph a = text_graph(17, kTwoBranches);
  for (const bool ignore : {false, true}) {
    DiffOptions options;
    options.ignore_names = ignore;
    const DiffReport report = diff_graphs(a, read_bytes(onnx_bytes(a)), options);
    EXPECT_TRUE(report.same());
    EXPECT_EQ(report.weights_equal, 3);
  }
}

TEST(Diff, OtherNamesAreTheSameWhenAsked) {
  const Graph a = text_graph(
      17, "g (float[2] x) => (float[2] y) <float[2] w = {1,2}> { p = Relu(x) q = Exp(x) y = Sub(p, q) }");
  const Graph b = text_graph(
      17,
      "g (float[2] in) => (float[2] out) <float[2] v = {1,2}> { n = Exp(in) m = Relu(in) out = Sub(m, n) }");
  EXPECT_FALSE(diff_graphs(a, b).same());
  DiffOptions options;
  options.ignore_names = true;
  EXPECT_TRUE(diff_graphs(a, b, options).same());
  const Graph swapped =
      text_graph(17, "g (float[2] in) => (float[2] out) { n = Exp(in) m = Relu(in) out = Sub(n, m) }");
  EXPECT_FALSE(diff_graphs(a, swapped, options).same()) << "the operands are the other way round";
}

TEST(Diff, FindsEachKind) {
  const char* base =
      "g (float[2] x) => (float[2] y) <float[2] w = {1,2}> { a = Elu <alpha = 1.0> (x) b = Mul(a, w) y = "
      "Neg(b) }";
  struct {
    const char* other;
    const char* kind;
    const char* where;
  } const cases[] = {
      {"g (float[2] x) => (float[2] y) <float[2] w = {1,2}> { a = Elu <alpha = 2.0> (x) b = Mul(a, w) y = "
       "Neg(b) }",
       "attribute", "a.alpha"},
      {"g (float[2] x) => (float[2] y) <float[2] w = {1,3}> { a = Elu <alpha = 1.0> (x) b = Mul(a, w) y = "
       "Neg(b) }",
       "weight", "b input 1 'w'"},
      {"g (float[2] x) => (float[2] y) <float[2] w = {1,2}> { a = Elu <alpha = 1.0> (x) b = Add(a, w) y = "
       "Neg(b) }",
       "node", "b"},
      {"g (float[2] x) => (float[2] y) <float[2] w = {1,2}> { a = Elu <alpha = 1.0> (x) b = Mul(a, w) y = "
       "Neg(a) }",
       "edge", "y input 0"},
      {"g (float[2] x) => (float[2] y) <float[2] w = {1,2}> { a = Elu <alpha = 1.0> (x) b = Mul(a, w) c = "
       "Abs(b) y = Neg(b) }",
       "node", "c"},
      {"g (float[N] x) => (float[N] y) <float[1] w = {1}> { a = Elu <alpha = 1.0> (x) b = Mul(a, w) y = "
       "Neg(b) }",
       "input", "input 0"},
  };
  for (const auto& c : cases) {
    const DiffReport report = diff_graphs(text_graph(17, base), text_graph(17, c.other));
    const bool found =
        std::any_of(report.differences.begin(), report.differences.end(),
                    [&](const Difference& d) { return d.kind == c.kind && d.where == c.where; });
    EXPECT_TRUE(found) << c.kind << " " << c.where << ", found "
                       << (report.same() ? std::string("nothing")
                                         : report.differences[0].kind + " " + report.differences[0].where);
    if (std::string(c.kind) == "weight") {
      EXPECT_EQ(report.differences[0].max_abs, 1);
    }
  }
}

TEST(Diff, LooksIntoBranches) {
  std::string other = kTwoBranches;
  other.replace(other.find("{9,10,11,12}"), 12, "{9,10,11,13}");
  const DiffReport report = diff_graphs(text_graph(17, kTwoBranches), text_graph(17, other));
  ASSERT_EQ(report.differences.size(), 1u);
  EXPECT_EQ(report.differences[0].kind, "weight");
  EXPECT_NE(report.differences[0].where.find("else_branch"), std::string::npos);
}

// --- safetensors

class SafetensorsFile : public testing::Test {
 protected:
  void write(const std::string& header, const std::string& data) {
    const std::uint64_t length = header.size();
    std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
    bytes += header + data;
    put(bytes);
  }
  void put(std::string_view bytes) const { write_file_atomically(path_, bytes); }
  void TearDown() override { std::remove(path_.c_str()); }
  std::string path_ = testing::TempDir() + "pare_weights_test.safetensors";
};

TEST_F(SafetensorsFile, ReadsTensors) {
  write(
      R"({"__metadata__":{"a":"b"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"k":{"dtype":"I8","shape":[1,3],"data_offsets":[8,11]}})",
      std::string("\0\0\x80\x3f\0\0\0\x40\x01\x02\xff", 11));
  const auto tensors = read_safetensors(path_);
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors.at("w").as<float>()[1], 2.0f);
  EXPECT_EQ(tensors.at("k").dims(), (Dims{1, 3}));
  EXPECT_EQ(tensors.at("k").to_ints()[2], -1);
}

TEST_F(SafetensorsFile, RefusesWhatIsDamaged) {
  struct {
    const char* header;
    std::size_t bytes;
  } const cases[] = {
      {"", 0},
      {"[]", 0},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7},                      // past the end
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8},                      // backwards
      {R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8},                      // another shape
      {R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8},                     // no size
      {R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", 8},  // overflow
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9},  // a byte too many
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"v":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
       6},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8},  // a hole
      {R"({"w":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8},
      {R"({"w":{"shape":[2],"data_offsets":[0,8]}})", 8},
  };
  for (const auto& c : cases) {
    write(c.header, std::string(c.bytes, 'x'));
    const Error error = thrown_by([&] { read_safetensors(path_); });
    EXPECT_TRUE(error.code() == ErrorCode::kBadFile || error.code() == ErrorCode::kUnsupported)
        << c.header << error.what();
  }
  put("short");
  EXPECT_EQ(thrown_by([&] { read_safetensors(path_); }).code(), ErrorCode::kBadFile);
  put(std::string(8, '\xff'));
  EXPECT_EQ(thrown_by([&] { read_safetensors(path_); }).code(), ErrorCode::kBadFile);
}

}  // namespace
}  // namespace pare
