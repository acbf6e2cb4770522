// Inputs of public bug reports about quantizers and where Q/DQ stand, each with its right result. Rows of the
// list that other tests hold are named in docs/calibration.md.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "engine/base/thread_pool.h"
#include "engine/numeric/table.h"
#include "engine/run/session.h"
#include "quant/audit.h"
#include "quant/plan.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare::quant {
namespace {

std::string weight(const std::string& dims, const std::string& name, int count, double scale = 0.03125) {
  std::string text = "float[" + dims + "] " + name + " = {";
  for (int i = 0; i < count; ++i)
    text += (i == 0 ? "" : ",") + std::to_string(scale * ((i * 7 + count) % 17 - 8));
  return text + "}";
}

Plan plan_for(const Graph& graph, const Spec& spec, const ChosenRange& range = {-1, 1, "given"}) {
  ThreadPool pool(1);
  Plan plan;
  plan.placement = place(graph, spec);
  for (const ActivationSite& site : plan.placement.activations)
    plan.activations.push_back(activation_from_range(site.format, range));
  plan.weights = plan_weights(graph, plan.placement, "rtn", pool);
  return plan;
}

Spec spec_for(Target target, const char* scheme = "int8") {
  Spec spec;
  spec.target = target;
  spec.weights = scheme_from_name(scheme).weights;
  spec.activations = scheme_from_name(scheme).activations;
  return spec;
}

// microsoft/onnxruntime#19694: the output channels of ConvTranspose lie along axis 1.
TEST(ReportedQuantizers, ConvTransposeHasItsScalesAlongAxisOne) {
  const Graph graph =
      text_graph(21, "g (float[1,3,4,4] x) => (float[1,64,6,6] y) <" + weight("3,64,3,3", "w", 3 * 64 * 9) +
                         ", " + weight("64", "b", 64) + "> { y = ConvTranspose(x, w, b) }");
  const Plan plan = plan_for(graph, spec_for(Target::kOnnxRuntime));
  ASSERT_EQ(plan.weights.size(), 1u);
  EXPECT_EQ(plan.placement.weights[0].axis, 1);
  EXPECT_EQ(plan.weights[0].scales.size(), 64);
  const Graph q = apply(graph, plan);
  EXPECT_TRUE(audit(graph, plan, q).passed());
  const ValueId bias = q.find_value("b_scale");
  EXPECT_TRUE(bias == ValueId::kNone || q.value(bias).constant.size() == 64);
}

// microsoft/onnxruntime#21000: x scale .5, weight scale 7.843e-10, bias [5, -4.5]: codes of 1.3e10 fit no
// int32.
TEST(ReportedQuantizers, ABiasThatDoesNotFitStaysFloat) {
  const Graph graph = text_graph(21,
                                 "g (float[1,1,2,2] x) => (float[1,2,2,2] y) <float[2,1,1,1] w = {0.0000001, "
                                 "0.0000001}, float[2] b = {5, -4.5}> { y = Conv(x, w, b) }");
  Plan plan = plan_for(graph, spec_for(Target::kOnnxRuntime), {-63.5, 63.5, ""});
  ASSERT_EQ(plan.activations[0].scale, 0.5f);
  EXPECT_LT(plan.weights[0].scales.as<float>()[0], 8e-10f);
  const Graph q = apply(graph, plan);
  EXPECT_EQ(q.find_value("b_quantized"), ValueId::kNone);
  const ValueId bias = q.find_value("b");
  ASSERT_NE(bias, ValueId::kNone);
  EXPECT_EQ(q.value(bias).constant.as<float>()[0], 5.0f);
  EXPECT_EQ(q.value(bias).constant.as<float>()[1], -4.5f);
}

// microsoft/onnxruntime#11660, #9425: symmetric codes cannot do a Relu's work.
TEST(ReportedQuantizers, ReluStaysBehindSymmetricCodes) {
  const Graph graph = text_graph(21, "g (float[1,2,3,3] x) => (float[1,2,3,3] y) <" +
                                         weight("2,2,1,1", "w", 4, 0.1) + "> { c = Conv(x, w) y = Relu(c) }");
  for (const Target target : {Target::kPare, Target::kTensorRT, Target::kOnnxRuntime}) {
    const Graph q = apply(graph, plan_for(graph, spec_for(target)));
    std::size_t relus = 0;
    for (const NodeId id : q.nodes()) relus += q.node(id).is("Relu") ? 1 : 0;
    EXPECT_EQ(relus, 1u) << name(target);
    ThreadPool pool(1);
    Session session(std::make_shared<Graph>(q), {&pool, true, false});
    std::vector<float> x(18);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(std::sin(static_cast<double>(i) * 2.1));
    const Tensor y = session.run({Tensor::from(DType::kF32, {1, 2, 3, 3}, x)})[0];
    for (std::int64_t i = 0; i < y.size(); ++i) EXPECT_GE(y.as<float>()[i], 0) << name(target);
  }
}

// microsoft/onnxruntime#14142: a tensor with several readers; #11530: one weight of two convolutions.
TEST(ReportedQuantizers, NamesAreUniqueAndASharedWeightIsStoredOnce) {
  const Graph graph =
      text_graph(21, "g (float[1,2,3,3] x) => (float[1,2,3,3] a, float[1,2,3,3] b) <" +
                         weight("2,2,1,1", "w", 4) + "> { a = Conv(x, w) r = Relu(x) b = Conv(r, w) }");
  for (const Target target : {Target::kPare, Target::kTensorRT, Target::kOnnxRuntime}) {
    const Plan plan = plan_for(graph, spec_for(target));
    EXPECT_EQ(plan.weights.size(), 1u);
    const Graph q = apply(graph, plan);
    std::set<std::string> nodes, values;
    std::size_t codes = 0;
    for (const NodeId id : q.nodes()) {
      EXPECT_TRUE(q.node(id).name.empty() || nodes.insert(q.node(id).name).second) << q.node(id).name;
      for (const ValueId out : q.node(id).out) EXPECT_TRUE(values.insert(q.value(out).name).second);
      if (q.node(id).is("DequantizeLinear") && q.is_constant(q.node(id).in[0]) &&
          q.value(q.node(id).in[0]).dtype == DType::kI8)
        ++codes;
    }
    EXPECT_EQ(codes, 1u) << name(target);
    EXPECT_TRUE(audit(graph, plan, q).passed());
  }
}

// microsoft/onnxruntime#20881, #21346: INT16 activations leave weights in INT8, per channel and per tensor.
TEST(ReportedQuantizers, WideActivationsKeepNarrowWeights) {
  const Graph graph =
      text_graph(21, "g (float[1,2,3,3] x, float[2,4] m) => (float[1,2,3,3] y, float[2,3] z) <" +
                         weight("2,2,1,1", "w", 4) + ", " + weight("4,3", "v", 12) +
                         "> { y = Conv(x, w) z = MatMul(m, v) }");
  for (const Granularity granularity : {Granularity::kChannel, Granularity::kTensor}) {
    Spec spec = spec_for(Target::kOnnxRuntime, "a16w8");
    spec.weights.granularity = granularity;
    const Plan plan = plan_for(graph, spec);
    ASSERT_EQ(plan.weights.size(), 2u);
    for (const WeightPlan& one : plan.weights) EXPECT_EQ(one.codes.dtype(), DType::kI8);
    for (const ActivationSite& site : plan.placement.activations) EXPECT_EQ(site.format.dtype, DType::kI16);
    EXPECT_TRUE(audit(graph, plan, apply(graph, plan)).passed());
  }
}

// NVIDIA/Model-Optimizer, its INT4 scales: groups are neighbouring rows of [Cin, Cout], (0,1) and (2,3).
TEST(ReportedQuantizers, GroupsAreNeighboursAlongTheSum) {
  const Graph graph =
      text_graph(21,
                 "g (float[1,4] x) => (float[1,2] y) <float[4,2] w = {1, 2, 1, 2, 16, 32, 16, 32}> { "
                 "y = MatMul(x, w) }");
  Spec spec = spec_for(Target::kPare, "int4");
  spec.weights.block = 2;
  const Plan plan = plan_for(graph, spec);
  ASSERT_EQ(plan.weights.size(), 1u);
  const Tensor& scales = plan.weights[0].scales;
  ASSERT_EQ(scales.dims(), (Dims{2, 2}));
  // Rows 0 and 1 are 16 times smaller than rows 2 and 3; groups of rows (0,2) would have one scale for both.
  for (int column = 0; column < 2; ++column)
    EXPECT_FLOAT_EQ(16 * scales.as<float>()[column], scales.as<float>()[2 + column]);
}

}  // namespace
}  // namespace pare::quant
