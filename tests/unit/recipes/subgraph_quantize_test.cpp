// Quantization inside If branches: taps, placement, codes, file, audit, integer kernels, layer pairs.
#include <gtest/gtest.h>

#include <cmath>

#include "datasets/random.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/run/session.h"
#include "eval/pair_layers.h"
#include "graphsurgeon/onnx/write.h"
#include "quant/audit.h"
#include "recipes/quantize/quantize_model.h"
#include "tests/unit/graphsurgeon/text_model.h"
#include "tests/unit/recipes/normal.h"

namespace pare {
namespace {

Tensor flag(bool v) { return Tensor::from<std::uint8_t>(DType::kBool, {}, {static_cast<std::uint8_t>(v)}); }

// "<float[8,3,3,3] w = {...}>"
std::string constant(const std::string& type, const std::string& name, std::int64_t count,
                     std::uint64_t seed) {
  const Tensor values = normal({count}, seed);
  std::string text = type + " " + name + " = {";
  for (std::int64_t i = 0; i < count; ++i)
    text += (i != 0 ? "," : "") + std::to_string(values.as<float>()[i] * 0.3F);
  return text + "}";
}

// The same small network twice, with weights of its own, in the two branches of an If.
Graph two_branches() {
  const auto branch = [](const std::string& p, std::uint64_t seed) {
    return "g_" + p + " () => (float[N,5] " + p + "_y) <" + constant("float[8,3,3,3]", p + "_w", 216, seed) +
           ", " + constant("float[8]", p + "_b", 8, seed + 1) + ", " +
           constant("float[8,5]", p + "_v", 40, seed + 2) + "> {" + p + "_h = Conv <pads = [1,1,1,1]> (x, " +
           p + "_w, " + p + "_b) " + p + "_r = Relu(" + p + "_h) " + p + "_m = GlobalAveragePool(" + p +
           "_r) " + p + "_f = Flatten(" + p + "_m) " + p + "_y = Gemm(" + p + "_f, " + p + "_v) }";
  };
  return text_graph(21, "g (bool c, float[N,3,8,8] x) => (float[N,5] y) { y = If (c) <then_branch = " +
                            branch("t", 1) + ", else_branch = " + branch("e", 11) + "> }");
}

std::vector<Tensor> run(const Graph& graph, const LowerOptions& options, bool c, ThreadPool& pool) {
  SessionOptions session_options;
  session_options.pool = &pool;
  Session session(lower_for_cpu(graph, options).graph, session_options);
  return session.run({flag(c), normal({4, 3, 8, 8}, 99)});
}

double sqnr_db(const Tensor& want, const Tensor& got) {
  double signal = 0, noise = 0;
  for (std::int64_t i = 0; i < want.size(); ++i) {
    const double r = static_cast<double>(want.as<float>()[i]), c = static_cast<double>(got.as<float>()[i]);
    signal += r * r;
    noise += (r - c) * (r - c);
  }
  return 10 * std::log10(signal / noise);
}

TEST(SubgraphQuantize, TheBranchThatTheDataTakesIsQuantizedTheOtherStaysFloat) {
  ThreadPool pool(2);
  const Graph graph = two_branches();
  QuantizeChoices choices;
  choices.spec.method = "search";
  choices.calibrator = "mse";
  const std::vector<CalibratedValue> values = values_to_watch(graph, choices.spec);
  ASSERT_EQ(values.size(), 4U);  // the inputs of Conv and Gemm in each branch
  const WatchableGraph watchable = lower_to_watch(graph, values);
  std::set<std::string> names;
  for (const WatchedValue& value : watchable.watched) names.insert(value.name);
  EXPECT_EQ(names, (std::set<std::string>{"y.then_branch/x", "y.then_branch/t_f", "y.else_branch/x",
                                          "y.else_branch/e_f"}));
  SessionOptions session_options;
  session_options.pool = &pool;
  Session session(watchable.lowered.graph, session_options);
  Collector collector(pool);
  collector.attach(session, watchable.watched);
  for (std::uint64_t i = 0; i < 4; ++i) session.run({flag(true), normal({4, 3, 8, 8}, 50 + i)});

  QuantizeInput input;
  input.graph = &graph;
  input.stats = collector.stats();
  input.pool = &pool;
  const QuantizeOutcome outcome = quantize_model(input, choices);
  EXPECT_EQ(outcome.plan.activations.size(), 2U);
  EXPECT_EQ(outcome.plan.weights.size(), 2U);
  std::set<std::string> skipped;
  for (const quant::Skipped& row : outcome.plan.placement.skipped) {
    skipped.insert(row.tensor);
    EXPECT_NE(row.why.find("a branch never taken"), std::string::npos) << row.why;
  }
  EXPECT_EQ(skipped, (std::set<std::string>{"y.else_branch/e_h", "y.else_branch/e_y"}));

  const Graph back = read_bytes(onnx_bytes(outcome.quantized));
  const quant::AuditResult audit = quant::audit(outcome.source, outcome.plan, back);
  EXPECT_TRUE(audit.passed()) << audit.mismatches[0].tensor << ": " << audit.mismatches[0].what;
  EXPECT_EQ(audit.tensors, 4);

  LowerOptions fake, integer;
  integer.integer = true;
  int kernels = 0;
  for (const Realized& row : lower_for_cpu(back, integer).realized)
    kernels += row.realized == "int8 x int8 kernel" ? 1 : 0;
  EXPECT_EQ(kernels, 2);
  const Tensor want = run(graph, fake, true, pool)[0];
  // 8 bits, a few layers, ranges by least error: about 35 dB; 25 is far from what a wrong scale would give.
  EXPECT_GT(sqnr_db(want, run(back, fake, true, pool)[0]), 25);
  EXPECT_GT(sqnr_db(want, run(back, integer, true, pool)[0]), 25);
  EXPECT_LT(sqnr_db(want, run(back, integer, true, pool)[0]), 80);  // it is quantized
  EXPECT_TRUE(equal_bytes(run(back, integer, false, pool)[0], run(graph, fake, false, pool)[0]));

  // A code changed in the file is found inside the branch, too.
  Graph damaged = back;
  const NodeId branch = damaged.producer(damaged.outputs[0]);
  Graph& then = own_subgraph_at(damaged, {{branch, "then_branch"}});
  for (std::size_t i = 0; i < then.value_count(); ++i) {
    Value& value = then.value(static_cast<ValueId>(i));
    if (!value.is_constant() || value.dtype != DType::kI8 || value.constant.size() < 40) continue;
    value.constant = value.constant.clone();
    value.constant.mut<std::int8_t>()[3] ^= 1;
    break;
  }
  EXPECT_FALSE(quant::audit(outcome.source, outcome.plan, damaged).passed());

  std::set<std::string> paired;
  for (const LayerPair& pair : pair_layers(graph, back)) {
    EXPECT_EQ(value_label(graph, pair.reference_path, pair.reference),
              value_label(back, pair.candidate_path, pair.candidate));
    paired.insert(value_label(graph, pair.reference_path, pair.reference));
  }
  EXPECT_EQ(paired, (std::set<std::string>{"y", "y.then_branch/t_h", "y.then_branch/t_y", "y.else_branch/e_h",
                                           "y.else_branch/e_y"}));
}

// Bodies of Scan and Loop: all iterations count, the weight is quantized once, and it runs on integers.
TEST(SubgraphQuantize, BodiesOfScanAndLoop) {
  const std::string weight = constant("float[6,6]", "w", 36, 5);
  const std::string texts[] = {
      "g (float[2,6] s, float[N,2,6] x) => (float[2,6] e, float[N,2,6] y) {"
      "  e, y = Scan (s, x) <num_scan_inputs = 1, body = b (float[2,6] p, float[2,6] q) =>"
      "    (float[2,6] r, float[2,6] t) <" +
          weight +
          "> {"
          "      u = Add(p, q) v = MatMul(u, w) r = Tanh(v) t = Identity(r) }> }",
      "g (float[2,6] s, float[N,2,6] x) => (float[2,6] e, float[N,2,6] y) <bool yes = {1}, int64 zero = {0}> "
      "{"
      "  n3 = Shape(x) n = Gather(n3, zero)"
      "  e, y = Loop (n, yes, s) <body = b (int64 i, bool c, float[2,6] p) =>"
      "    (bool co, float[2,6] r, float[2,6] t) <" +
          weight +
          "> {"
          "      co = Identity(c) q = Gather(x, i) u = Add(p, q) v = MatMul(u, w) r = Tanh(v) t = "
          "Identity(r) }> }"};
  ThreadPool pool(2);
  for (const std::string& text : texts) {
    const Graph graph = text_graph(21, text);
    const auto outputs = [&](const Graph& g, bool integer) {
      LowerOptions lower;
      lower.integer = integer;
      SessionOptions options;
      options.pool = &pool;
      Session session(lower_for_cpu(g, lower).graph, options);
      return session.run({normal({2, 6}, 70), normal({5, 2, 6}, 71)});
    };
    QuantizeChoices choices;
    choices.spec.method = "search";
    choices.calibrator = "minmax";
    const std::vector<CalibratedValue> values = values_to_watch(graph, choices.spec);
    ASSERT_EQ(values.size(), 1U);
    const WatchableGraph watchable = lower_to_watch(graph, values);
    EXPECT_EQ(watchable.watched[0].name, "e.body/u");
    SessionOptions session_options;
    session_options.pool = &pool;
    Session session(watchable.lowered.graph, session_options);
    Collector collector(pool);
    collector.attach(session, watchable.watched);
    session.run({normal({2, 6}, 70), normal({5, 2, 6}, 71)});
    EXPECT_EQ(collector.stats()[0].total, 5U * 12U);
    QuantizeInput input;
    input.graph = &graph;
    input.stats = collector.stats();
    input.pool = &pool;
    const QuantizeOutcome outcome = quantize_model(input, choices);
    const Graph back = read_bytes(onnx_bytes(outcome.quantized));
    EXPECT_TRUE(quant::audit(outcome.source, outcome.plan, back).passed());
    LowerOptions integer;
    integer.integer = true;
    const Lowered lowered = lower_for_cpu(back, integer);
    ASSERT_EQ(lowered.realized.size(), 1U);
    EXPECT_EQ(lowered.realized[0].realized, "int8 x int8 kernel");
    const std::vector<Tensor> want = outputs(graph, false), fake = outputs(back, false),
                              whole = outputs(back, true);
    for (std::size_t k = 0; k < want.size(); ++k) {
      EXPECT_GT(sqnr_db(want[k], fake[k]), 25);
      EXPECT_LT(sqnr_db(want[k], fake[k]), 80);
      EXPECT_GT(sqnr_db(fake[k], whole[k]), 60);  // the two differ by the rounding of float sums
    }
  }
}

// What fusion does around an If it does inside: bias and activation move into the convolution.
TEST(SubgraphQuantize, BranchesAreFused) {
  const Graph graph = two_branches();
  const Lowered lowered = lower_for_cpu(graph);
  const Graph& g = *lowered.graph;
  const Graph& then = subgraph_at(g, {{g.producer(g.outputs[0]), "then_branch"}});
  int convolutions = 0;
  for (const NodeId id : then.nodes()) {
    convolutions += then.node(id).is("pare", "Conv") ? 1 : 0;
    EXPECT_FALSE(then.node(id).is("Conv"));
    EXPECT_FALSE(then.node(id).is("Relu"));
  }
  EXPECT_EQ(convolutions, 1);
  ThreadPool pool(1);
  LowerOptions plain;
  plain.fuse = plain.channels_last = false;
  for (const bool c : {true, false})
    EXPECT_GT(sqnr_db(run(graph, plain, c, pool)[0], run(graph, {}, c, pool)[0]), 110);  // rounding
}

// vllm-project/vllm#45212, NVIDIA/Model-Optimizer#1354: an expert that received no token has no range. It
// stays float and is named; the others are quantized.
TEST(SubgraphQuantize, AnExpertWithoutTokensStaysFloat) {
  ThreadPool pool(1);
  const Graph graph = text_graph(
      21, "g (float[N,32] x, int64[K] chosen) => (float[N,32] y, float[M,32] z) <" +
              constant("float[32,32]", "w", 32 * 32, 1) + ", " + constant("float[32,32]", "v", 32 * 32, 2) +
              "> { y = MatMul(x, w) rows = Gather<axis = 0>(x, chosen) z = MatMul(rows, v) }");
  QuantizeChoices choices;
  choices.spec.method = "rtn";
  choices.calibrator = "minmax";
  const WatchableGraph watchable = lower_to_watch(graph, values_to_watch(graph, choices.spec));
  SessionOptions session_options;
  session_options.pool = &pool;
  Session session(watchable.lowered.graph, session_options);
  Collector collector(pool);
  collector.attach(session, watchable.watched);
  session.run({normal({4, 32}, 3), Tensor::allocate(DType::kI64, {0})});
  QuantizeInput input;
  input.graph = &graph;
  input.stats = collector.stats();
  input.pool = &pool;
  const QuantizeOutcome outcome = quantize_model(input, choices);
  EXPECT_EQ(outcome.plan.weights.size(), 1U);
  ASSERT_EQ(outcome.plan.placement.skipped.size(), 1U);
  EXPECT_EQ(outcome.plan.placement.skipped[0].tensor, "z");
  EXPECT_NE(outcome.plan.placement.skipped[0].why.find("an expert without tokens"), std::string::npos);
  for (const quant::ActivationPlan& plan : outcome.plan.activations) EXPECT_TRUE(std::isfinite(plan.scale));
}

}  // namespace
}  // namespace pare
