// Which tensors get Q/DQ for which target, on a residual block as exporters write it:
//
//   x -> conv1 -> Relu -> conv2 -> Add(., shortcut) -> Relu -> GlobalAveragePool -> Flatten -> Gemm -> y
//   x -> shortcut (1x1 Conv)
#include "quant/placement/placement.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/base/error.h"
#include "quant/plan.h"
#include "tests/unit/quant/build_graph.h"

namespace pare::quant {
namespace {

std::vector<std::string> names(const Graph& graph, const Placement& placement) {
  std::vector<std::string> list;
  for (const ActivationSite& site : placement.activations) list.push_back(graph.value(site.value).name);
  std::sort(list.begin(), list.end());
  return list;
}

using Names = std::vector<std::string>;

TEST(Placement, TensorRTQuantizesInputsAndTheResidual) {
  const Graph graph = test::residual_block();
  Spec spec;
  spec.target = Target::kTensorRT;
  const Placement placement = place(graph, spec);
  // conv2 is deeper than the shortcut, so the shortcut's output is the residual.
  EXPECT_EQ(names(graph, placement), (Names{"flat", "relu1", "shortcut", "x"}));
  EXPECT_EQ(placement.weights.size(), 4u);
  EXPECT_TRUE(placement.biases.empty());
  for (const ActivationSite& site : placement.activations)
    if (graph.value(site.value).name == "x") {
      EXPECT_EQ(site.uses.size(), 2u);
    }
}

TEST(Placement, PareLeavesTheResidualFloat) {
  const Graph graph = test::residual_block();
  EXPECT_EQ(names(graph, place(graph, Spec{})), (Names{"flat", "relu1", "x"}));
}

TEST(Placement, OnnxRuntimeQuantizesOutputsAndBiasesToo) {
  const Graph graph = test::residual_block();
  Spec spec;
  spec.target = Target::kOnnxRuntime;
  const Placement placement = place(graph, spec);
  EXPECT_EQ(names(graph, placement),
            (Names{"conv1", "conv2", "flat", "pooled", "relu1", "relu2", "shortcut", "sum", "x", "y"}));
  EXPECT_EQ(placement.biases.size(), 2u);  // conv1 and the Gemm have one
}

TEST(Placement, AsymmetricCodesAbsorbARelu) {
  const Graph graph = test::residual_block();
  Spec spec;
  spec.target = Target::kOnnxRuntime;
  spec.activations = scheme_from_name("uint8").activations;
  const Names got = names(graph, place(graph, spec));
  EXPECT_EQ(std::count(got.begin(), got.end(), "conv1"), 0);
  EXPECT_EQ(std::count(got.begin(), got.end(), "relu1"), 1);
}

TEST(Placement, RulesGoInOrderAndTheLastWins) {
  const Graph graph = test::residual_block();
  Spec spec;
  spec.rules.push_back({{{"re:.*"}, {}, {}}, false, {}, {}});
  spec.rules.push_back({{{}, {"Gemm"}, {}}, true, {}, {}});
  const Placement placement = place(graph, spec);
  EXPECT_EQ(names(graph, placement), (Names{"flat"}));
  ASSERT_EQ(placement.skipped.size(), 3u);
  EXPECT_EQ(placement.skipped[0].why, "rule 1 says so");
}

TEST(Placement, ALayerIsCalledByItsNodeOrByWhatItComputes) {
  const Graph graph = test::residual_block();
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    if (!node.is("Conv")) continue;
    for (const std::string& name : {node.name, graph.value(node.out[0]).name}) {
      Spec spec;
      spec.rules.push_back({{{name}, {}, {}}, false, {}, {}});
      const Placement placement = place(graph, spec);
      EXPECT_EQ(placement.weights.size(), 3u) << name;
      EXPECT_TRUE(placement.unmatched.empty()) << name;
    }
  }
}

TEST(Placement, RulesByBlockAndByElementType) {
  Graph graph = test::residual_block();
  int convolution = 0;
  for (const NodeId id : graph.nodes())
    if (graph.node(id).is("Conv"))
      graph.node(id).name = "model.layers.1" + std::to_string(convolution++) + ".mlp";
  const auto left = [&](const Names& dtype, const Names& block) {
    Spec spec;
    Rule rule;
    rule.match.dtype = dtype;
    rule.match.block = block;
    rule.quantize = false;
    spec.rules.push_back(rule);
    const Placement placement = place(graph, spec);
    return std::pair(placement.weights.size(), placement.unmatched.size());
  };
  using Counts = std::pair<std::size_t, std::size_t>;
  EXPECT_EQ(left({}, {"11"}), Counts(3, 0));
  EXPECT_EQ(left({}, {"10", "12"}), Counts(2, 0));
  EXPECT_EQ(left({}, {"re:1[0-9]"}), Counts(1, 0));  // the Gemm is in no block
  EXPECT_EQ(left({}, {"1"}), Counts(4, 1));
  EXPECT_EQ(left({"float32"}, {"11"}), Counts(3, 0));
  EXPECT_EQ(left({"float32"}, {}), Counts(0, 0));
  EXPECT_EQ(left({"float16"}, {}), Counts(4, 1));
}

TEST(Placement, RulesThatMatchNothingAreNamed) {
  const Graph graph = test::residual_block();
  Spec spec;
  spec.rules.push_back({{{"shortcuts", "re:.*conv9.*"}, {}, {}}, false, {}, {}});
  spec.rules.push_back({{{}, {"Convolution", "Gemm"}, {}}, false, {}, {}});
  spec.rules.push_back({{{}, {}, {"relu1", "nothing of the kind"}}, false, {}, {}});
  spec.rules.push_back({{{"re:hort"}, {}, {}}, false, {}, {}});
  const Placement placement = place(graph, spec);
  ASSERT_EQ(placement.unmatched.size(), 5u);
  EXPECT_NE(placement.unmatched[4].find("did you mean 're:.*hort.*'?"), std::string::npos)
      << placement.unmatched[4];
  EXPECT_EQ(placement.unmatched[0],
            "a rule names 'shortcuts', which no layer of the model is called; did you mean 'shortcut'?");
  EXPECT_NE(placement.unmatched[1].find("'re:.*conv9.*'"), std::string::npos);
  EXPECT_NE(placement.unmatched[2].find("'Convolution', which no operator"), std::string::npos);
  EXPECT_NE(placement.unmatched[3].find("'nothing of the kind', which no tensor"), std::string::npos);
}

TEST(Placement, Fp8LeavesSmallOperatorsFloat) {
  const Graph graph = test::residual_block();
  Spec spec;
  spec.weights = scheme_from_name("fp8").weights;
  spec.activations = scheme_from_name("fp8").activations;
  const Placement placement = place(graph, spec);
  // 8 and 16 channels, and 5 classes: nothing here is large enough, and each is named with its reason.
  EXPECT_TRUE(placement.weights.empty());
  ASSERT_EQ(placement.skipped.size(), 4u);
  EXPECT_EQ(placement.skipped[0].why, "8 by 16 channels a group: FP8 convolutions need more than 16");
  EXPECT_EQ(placement.skipped[3].why, "5 by 16: FP8 products need at least 16 a side");
}

TEST(Placement, WeightOnlyTouchesNoActivation) {
  const Graph graph = test::residual_block();
  Spec spec;
  spec.activations = {};
  const Placement placement = place(graph, spec);
  EXPECT_TRUE(placement.activations.empty());
  EXPECT_EQ(placement.weights.size(), 4u);
}

TEST(Placement, OperatorsNotAskedForAreNamed) {
  const Graph graph = test::residual_block();
  Spec spec;
  spec.ops = {"Gemm"};
  const Placement placement = place(graph, spec);
  EXPECT_EQ(placement.weights.size(), 1u);
  EXPECT_EQ(placement.skipped.size(), 3u);
}

TEST(Placement, ImpossibleRequestsAreRefusedBeforeWork) {
  const Graph graph = test::residual_block();
  Spec mixed;
  mixed.activations.dtype = DType::kE4M3FN;
  EXPECT_THROW(place(graph, mixed), Error);
  Spec channels;
  channels.activations.granularity = Granularity::kChannel;
  channels.target = Target::kTensorRT;
  EXPECT_THROW(place(graph, channels), Error);
  Spec pattern;
  pattern.rules.push_back({{{"re:("}, {}, {}}, false, {}, {}});
  EXPECT_THROW(place(graph, pattern), Error);
  EXPECT_THROW(scheme_from_name("int9"), Error);
}

}  // namespace
}  // namespace pare::quant
