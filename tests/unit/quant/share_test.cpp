// What must be one decision: codes that pass through operators which only move values, constants that several
// nodes read, layers that runtimes fuse. In the graph and inside branches.
#include "quant/placement/share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "engine/base/error.h"
#include "quant/placement/value_moving.h"
#include "quant/plan.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare::quant {
namespace {

using Names = std::vector<std::string>;

std::string weight(const std::string& dims, const std::string& name, int count) {
  std::string text = "float[" + dims + "] " + name + " = {";
  for (int i = 0; i < count; ++i)
    text +=
        (i == 0 ? "" : ",") + std::to_string(0.03125 * ((i * 7 + static_cast<int>(name.size())) % 17 - 8));
  return text + "}";
}

// By name: the group of each activation site.
std::map<std::string, int> groups(const Graph& graph, const Placement& placement) {
  std::map<std::string, int> found;
  for (const ActivationSite& site : placement.activations)
    found[value_label(graph, site.path, site.value)] = site.group;
  return found;
}

const WeightSite* weight_of(const Graph& graph, const Placement& placement, const std::string& name) {
  for (const WeightSite& site : placement.weights)
    if (value_label(graph, site.path, site.value) == name) return &site;
  return nullptr;
}

std::string why_skipped(const Placement& placement, const std::string& tensor) {
  for (const Skipped& row : placement.skipped)
    if (row.tensor == tensor) return row.why;
  return "";
}

Spec spec_for(Target target) {
  Spec spec;
  spec.target = target;
  return spec;
}

Spec weights_only() {
  Spec spec;
  spec.activations = {};
  return spec;
}

// --- Q/DQ of the model, behind operators that move values

struct Mover {
  const char* text;  // from d (dequantized, [1,8,4,4]) to m ([1,8,...])
  bool moves;
};

class ModelsOwnCodes : public testing::TestWithParam<Mover> {};

TEST_P(ModelsOwnCodes, AreSeenThroughWhatOnlyMovesThem) {
  const std::string text =
      "g (float[1,8,4,4] x) => (float[1,8,a,b] y) <float s = {0.1}, float s2 = {0.2}, int8 z = {0}, float "
      "one = {1}, "
      "int64[4] same = {1,8,2,8}, int64[1] zero = {0}, int64[1] four = {4}, int64[1] axis = {3}, float[0] "
      "none = {}, "
      "float[4] twice = {1,1,2,2}, int64[8] pads = {0,0,1,1,0,0,1,1}, int64[4] order = {3,1,0,2}, " +
      weight("8,8,1,1", "w", 64) + "> { q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) " +
      "q2 = QuantizeLinear(x, s2, z) e = DequantizeLinear(q2, s2, z) " + GetParam().text +
      " y = Conv(m, w) }";
  const Graph graph = text_graph(21, text);
  for (const Target target : {Target::kPare, Target::kTensorRT}) {
    const Placement placement = place(graph, spec_for(target));
    if (GetParam().moves) {
      EXPECT_TRUE(placement.activations.empty()) << GetParam().text;
      EXPECT_EQ(why_skipped(placement, "m"), "its Q/DQ in the model are kept");
    } else {
      ASSERT_EQ(placement.activations.size(), 1u) << GetParam().text;
      EXPECT_EQ(graph.value(placement.activations[0].value).name, "m");
    }
    EXPECT_EQ(placement.weights.size(), 1u) << "the weight has no codes yet";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Operators, ModelsOwnCodes,
    testing::Values(Mover{"m = MaxPool <kernel_shape = [2,2]> (d)", true},
                    Mover{"m = Reshape(d, same)", true}, Mover{"m = Transpose <perm = [0,1,3,2]> (d)", true},
                    Mover{"m = Slice(d, zero, four, axis)", true},
                    Mover{"m, n = Split <axis = 3, num_outputs = 2> (d)", true},
                    Mover{"m = Gather <axis = 3> (d, order)", true},
                    Mover{"m = Resize <mode = \"nearest\"> (d, none, twice)", true},
                    Mover{"m = Resize <mode = \"linear\"> (d, none, twice)", false},
                    Mover{"m = Pad(d, pads)", true}, Mover{"m = Pad <mode = \"edge\"> (d, pads)", true},
                    Mover{"m = Pad(d, pads, one)", false},
                    Mover{"t = Transpose <perm = [0,1,3,2]> (d) i = Identity(t) m = Reshape(i, same)", true},
                    Mover{"m = Concat <axis = 3> (d, d)", true}, Mover{"m = Concat <axis = 3> (d, e)", false},
                    Mover{"m = Concat <axis = 3> (d, x)", false},
                    Mover{"m = AveragePool <kernel_shape = [2,2]> (d)", false}, Mover{"m = Relu(d)", false}));

// --- shared activation scales

// a is quantized for c; the concatenation of a and b for e. The pooled a for f.
Graph concatenated() {
  return text_graph(21,
                    "g (float[1,8,6,6] x) => (float[1,8,6,6] c, float[1,8,6,6] e, float[1,8,5,5] f) <" +
                        weight("8,8,1,1", "wa", 64) + ", " + weight("8,8,1,1", "wb", 64) + ", " +
                        weight("8,8,1,1", "wc", 64) + ", " + weight("8,16,1,1", "we", 128) + ", " +
                        weight("8,8,1,1", "wf", 64) +
                        "> { ca = Conv(x, wa) a = Relu(ca) cb = Conv(x, wb) b = Sigmoid(cb) c = Conv(a, wc) "
                        "j = Concat <axis = 1> (a, b) e = Conv(j, we) p = MaxPool <kernel_shape = [2,2]> (a) "
                        "f = Conv(p, wf) }");
}

TEST(SharedScales, InputsOfAConcatAndOfAPool) {
  const Graph graph = concatenated();
  const std::map<std::string, int> trt = groups(graph, place(graph, spec_for(Target::kTensorRT)));
  ASSERT_EQ(trt.size(), 4u);  // x, a, j, p
  EXPECT_GE(trt.at("a"), 0);
  EXPECT_EQ(trt.at("j"), trt.at("a"));
  EXPECT_EQ(trt.at("p"), trt.at("a"));
  EXPECT_EQ(trt.at("x"), -1) << "no codes pass from it to another";
  for (const auto& [name, group] : groups(graph, place(graph, spec_for(Target::kPare))))
    EXPECT_EQ(group, -1) << name << ": our kernels take the codes of each tensor as they are";
}

TEST(SharedScales, OnnxRuntimeNeedsAPairBehindEveryMove) {
  const Graph graph = text_graph(
      21, "g (float[1,8,6,6] x) => (float[1,200] y, float[1,8] z) <int64[2] flat = {1,200}, " +
              weight("8,8,1,1", "wa", 64) + ", " + weight("8,8,1,1", "wz", 64) +
              "> { a = Conv(x, wa) p = MaxPool <kernel_shape = [2,2]> (a) y = Reshape(p, flat) "
              "s = Sigmoid(x) v = MaxPool <kernel_shape = [6,6]> (s) u = Conv(v, wz) z = Flatten(u) }");
  const Placement placement = place(graph, spec_for(Target::kOnnxRuntime));
  const std::map<std::string, int> got = groups(graph, placement);
  // a is the output of a Conv; p and y carry its codes, y as the model's output. s is quantized by nobody.
  std::set<std::string> names;
  for (const auto& [name, group] : got) names.insert(name);
  EXPECT_EQ(names, (std::set<std::string>{"x", "a", "p", "y", "v", "u", "z"}));
  EXPECT_EQ(got.at("p"), got.at("a"));
  EXPECT_EQ(got.at("y"), got.at("a"));
  EXPECT_EQ(got.at("z"), got.at("u"));
  EXPECT_NE(got.at("z"), got.at("a"));
  EXPECT_EQ(got.at("v"), -1);
  for (const ActivationSite& site : placement.activations)
    if (graph.value(site.value).name == "y") {
      EXPECT_TRUE(site.graph_output);
      EXPECT_EQ(site.rule, "output of Reshape on its input's codes");
    }
}

TEST(SharedScales, GroupsInBranchesAreTheirOwn) {
  const auto branch = [](const std::string& n) {
    return "g" + n + " () => (float[1,8,6,6] y" + n + ") <" + weight("8,8,1,1", "u" + n, 64) + ", " +
           weight("8,8,1,1", "v" + n, 64) + "> { a" + n + " = Conv(x, u" + n + ") m" + n +
           " = Transpose <perm = [0,1,3,2]> (x) b" + n + " = Conv(m" + n + ", v" + n + ") y" + n +
           " = Add(a" + n + ", b" + n + ") }";
  };
  const Graph graph = text_graph(
      21, "g (bool c, float[1,8,6,6] x) => (float[1,8,6,6] y) { y = If (c) <then_branch = " + branch("t") +
              ", else_branch = " + branch("e") + "> }");
  const std::map<std::string, int> got = groups(graph, place(graph, spec_for(Target::kTensorRT)));
  EXPECT_EQ(got.at("y.then_branch/mt"), got.at("y.then_branch/x"));
  EXPECT_EQ(got.at("y.else_branch/me"), got.at("y.else_branch/x"));
  EXPECT_GE(got.at("y.else_branch/me"), 0);
  EXPECT_NE(got.at("y.else_branch/me"), got.at("y.then_branch/mt"));
}

// --- tied weights

Graph tied() {  // an embedding and a head that reads it turned
  return text_graph(21, "g (int64[3] ids) => (float[3,6] y) <" + weight("6,4", "w", 24) +
                            "> { h = Gather(w, ids) t = Transpose <perm = [1,0]> (w) y = MatMul(h, t) }");
}

TEST(TiedWeights, OneSetOfCodesForTheEmbeddingAndTheHead) {
  const Graph graph = tied();
  for (const bool activations : {false, true}) {
    const Placement placement = place(graph, activations ? Spec{} : weights_only());
    ASSERT_EQ(placement.weights.size(), 1u);
    const WeightSite& site = placement.weights[0];
    EXPECT_EQ(site.axis, 0) << "the head's output channels are the rows, whichever way they are read";
    EXPECT_EQ(site.reduce_axis, 1);
    EXPECT_EQ(site.uses.size(), 2u);
    EXPECT_TRUE(placement.notes.empty());
    ThreadPool pool(1);
    Plan plan;
    plan.placement = placement;
    plan.weights = plan_weights(graph, placement, "rtn", pool);
    for (const ActivationSite& one : placement.activations)
      plan.activations.push_back(activation_from_range(one.format, {-1, 1, ""}));
    const Graph quantized = apply(graph, plan);
    for (std::size_t i = 0; i < quantized.value_count(); ++i) {
      const Value& value = quantized.value(static_cast<ValueId>(i));
      EXPECT_FALSE(value.is_constant() && value.dtype == DType::kF32 && value.constant.size() == 24)
          << "no float copy is left";
    }
  }
}

TEST(TiedWeights, ARuleKeepsAReaderFloatAndTheCostIsSaid) {
  Spec spec = weights_only();
  spec.rules.push_back({{{}, {"Gather"}, {}}, false, {}, {}});
  const Placement placement = place(tied(), spec);
  ASSERT_EQ(placement.weights.size(), 1u);
  EXPECT_EQ(placement.weights[0].uses.size(), 1u);
  EXPECT_EQ(placement.notes,
            (Names{"weight 'w' is stored twice, as codes and in float: 'h' reads it in float"}));
}

TEST(TiedWeights, TwoReadersWhoseChannelsLieAlongOtherAxes) {
  const Graph graph =
      text_graph(21, "g (float[3,4] x, float[3,4] z) => (float[3,4] y, float[3,4] v) <" +
                         weight("4,4", "w", 16) + "> { y = MatMul(x, w) v = Gemm <transB = 1> (z, w) }");
  const Placement both = place(graph, Spec{});
  ASSERT_EQ(both.weights.size(), 1u);
  EXPECT_EQ(both.weights[0].axis, 1);
  EXPECT_EQ(both.weights[0].uses.size(), 1u);
  EXPECT_EQ(
      why_skipped(both, "v"),
      "its weight 'w' has codes already, with the output channels of 'y' along axis 1; here they lie along "
      "axis 0");
  EXPECT_EQ(both.notes.size(), 1u);
  // In float arithmetic the scale may lie along any axis; one scale for the tensor has none.
  EXPECT_EQ(place(graph, weights_only()).weights.at(0).uses.size(), 2u);
  Spec tensor;
  tensor.weights.granularity = Granularity::kTensor;
  EXPECT_EQ(place(graph, tensor).weights.at(0).uses.size(), 2u);
}

TEST(TiedWeights, TwoFormatsForOneConstantAreRefusedByName) {
  const Graph graph = text_graph(21, "g (float[3,4] x, float[3,4] z) => (float[3,4] y, float[3,4] v) <" +
                                         weight("4,4", "w", 16) + "> { y = MatMul(x, w) v = MatMul(z, w) }");
  Spec spec = weights_only();
  Format other = spec.weights;
  other.granularity = Granularity::kTensor;
  spec.rules.push_back({{{"v"}, {}, {}}, {}, other, {}});
  const Placement placement = place(graph, spec);
  ASSERT_EQ(placement.weights.size(), 1u);
  EXPECT_EQ(placement.weights[0].uses.size(), 1u);
  EXPECT_NE(why_skipped(placement, "v").find("one constant has one set of codes"), std::string::npos);
}

TEST(Weights, ATransposeThatOthersReadIsNotAWeight) {
  const Graph graph =
      text_graph(21, "g (float[3,4] x) => (float[3,4] y, float[4,4] r) <" + weight("4,4", "w", 16) +
                         "> { t = Transpose <perm = [1,0]> (w) y = MatMul(x, t) r = Sigmoid(t) }");
  for (const Spec& spec : {Spec{}, weights_only()}) {
    const Placement placement = place(graph, spec);
    EXPECT_TRUE(placement.weights.empty());
    EXPECT_TRUE(placement.activations.empty());
    EXPECT_EQ(why_skipped(placement, "y"),
              "its weight goes through a Transpose that other operators read in float");
  }
}

TEST(Weights, AxesOfEveryLinearOperator) {
  const Graph graph = text_graph(21,
                                 "g (float[1,8,4,4] x, float[2,8] m, float[8,2] n) => (float[1,4,4,4] a, "
                                 "float[1,4,4,4] b, float[2,4] c, "
                                 "float[2,4] d, float[2,4] e, float[4,2] f) <" +
                                     weight("4,8,1,1", "wa", 32) + ", " + weight("8,4,1,1", "wb", 32) + ", " +
                                     weight("8,4", "wc", 32) + ", " + weight("4,8", "wd", 32) + ", " +
                                     weight("8,4", "we", 32) + ", " + weight("4,8", "wf", 32) +
                                     "> { a = Conv(x, wa) b = ConvTranspose(x, wb) c = Gemm(m, wc) d = Gemm "
                                     "<transB = 1> (m, wd) e = MatMul(m, "
                                     "we) f = MatMul(wf, n) }");
  const Placement placement = place(graph, weights_only());
  struct Want {
    const char* name;
    int axis, reduce;
  };
  for (const Want& want : {Want{"wa", 0, 1}, Want{"wb", 1, 0}, Want{"wc", 1, 0}, Want{"wd", 0, 1},
                           Want{"we", 1, 0}, Want{"wf", 0, 1}}) {
    const WeightSite* site = weight_of(graph, placement, want.name);
    ASSERT_NE(site, nullptr) << want.name;
    EXPECT_EQ(site->axis, want.axis) << want.name;
    EXPECT_EQ(site->reduce_axis, want.reduce) << want.name;
  }
}

// --- layers that are fused

Graph attention_inputs() {
  return text_graph(
      21, "g (float[3,8] x) => (float[3,8] q, float[3,4] k, float[3,4] v, float[3,4] g, float[3,4] u) <" +
              weight("8,8", "wq", 64) + ", " + weight("8,4", "wk", 32) + ", " + weight("8,4", "wvv", 32) +
              ", " + weight("8,4", "wgate", 32) + ", " + weight("8,4", "wu", 32) +
              "> { q = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wvv) h = Sigmoid(q) "
              "g = MatMul(h, wgate) u = MatMul(h, wu) }");
}

TEST(FusedLayers, AreFoundByTheActivationThatTheyRead) {
  const Graph graph = attention_inputs();
  Spec spec;
  EXPECT_TRUE(place(graph, spec).fused.empty()) << "only where the recipe asks";
  spec.share = {"qkv", "gate_up"};
  const Placement placement = place(graph, spec);
  ASSERT_EQ(placement.fused.size(), 2u);
  EXPECT_EQ(placement.activations.size(), 2u) << "one pair for all that read an activation";
  for (const FusedLayers& group : placement.fused)
    EXPECT_EQ(group.weights.size(), group.kind == "qkv" ? 3u : 2u);
  spec.share = {"gate_up"};
  ASSERT_EQ(place(graph, spec).fused.size(), 1u);
  EXPECT_EQ(place(graph, spec).fused[0].kind, "gate_up");
}

TEST(FusedLayers, HaveOneScaleForTheTensor) {
  const Graph graph = attention_inputs();
  ThreadPool pool(1);
  Spec spec;
  spec.share = {"qkv", "gate_up"};
  spec.weights.granularity = Granularity::kTensor;
  const Placement placement = place(graph, spec);
  for (const char* method : {"rtn", "search"}) {
    const std::vector<WeightPlan> plans = plan_weights(graph, placement, method, pool);
    for (const FusedLayers& group : placement.fused)
      for (const std::size_t i : group.weights)
        EXPECT_TRUE(equal_bytes(plans[i].scales, plans[group.weights[0]].scales)) << method;
  }
  // By the book: the largest magnitude of all three.
  float amax = 0;
  for (const char* name : {"wq", "wk", "wvv"}) {
    const Tensor& w = graph.value(graph.find_value(name)).constant;
    for (std::int64_t i = 0; i < w.size(); ++i) amax = std::max(amax, std::fabs(w.as<float>()[i]));
  }
  const std::vector<WeightPlan> plain = plan_weights(graph, placement, "rtn", pool);
  const std::size_t q =
      static_cast<std::size_t>(weight_of(graph, placement, "wq") - placement.weights.data());
  EXPECT_FLOAT_EQ(*plain[q].scales.as<float>(), amax / 127);
  // A scale a channel has nothing to share.
  spec.weights.granularity = Granularity::kChannel;
  const std::vector<WeightPlan> channels = plan_weights(graph, place(graph, spec), "rtn", pool);
  EXPECT_EQ(channels[q].scales.size(), 8);
}

TEST(FusedLayers, OfTwoFormatsAreNoGroupAndThatIsSaid) {
  const Graph graph = attention_inputs();
  Spec spec;
  spec.share = {"qkv"};
  Format tensor = spec.weights;
  tensor.granularity = Granularity::kTensor;
  spec.rules.push_back({{{"k"}, {}, {}}, {}, tensor, {}});
  const Placement placement = place(graph, spec);
  EXPECT_TRUE(placement.fused.empty());
  ASSERT_EQ(placement.notes.size(), 1u);
  EXPECT_NE(placement.notes[0].find("that read 'x' are no qkv group"), std::string::npos);
}

TEST(FusedLayers, KeepTheirIndicesWhenAMemberIsLeftFloat) {
  const Graph graph = attention_inputs();
  Spec spec;
  spec.share = {"qkv", "gate_up"};
  Placement placement = place(graph, spec);
  std::vector<std::size_t> x;
  for (std::size_t i = 0; i < placement.activations.size(); ++i)
    if (graph.value(placement.activations[i].value).name == "x") x.push_back(i);
  leave_float(graph, placement, x, "a test says so");
  EXPECT_EQ(placement.weights.size(), 2u);
  for (const FusedLayers& group : placement.fused)
    for (const std::size_t i : group.weights)
      EXPECT_EQ(static_cast<std::size_t>(placement.weights.at(i).fused),
                static_cast<std::size_t>(&group - placement.fused.data()));
}

}  // namespace
}  // namespace pare::quant
