// What a report and a written model say of one layer, and what differs between two reports.
#include "recipes/study/explain.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "quant/plan.h"
#include "recipes/plan_report.h"
#include "recipes/study/compare_runs.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare {
namespace {

struct Quantized {
  Graph written;
  Report report;
};

// y = MatMul(a, v), h = MatMul(x, w) left alone by a rule, and an If whose branch has a MatMul.
Quantized quantized(const char* method) {
  Graph graph = text_graph(
      21,
      "g (bool c, float[2,2] x) => (float[2,2] y, float[2,2] z) <float[2,2] w = {1,2,3,4}, float[2,2] v = "
      "{1,2,3,5}> "
      "{ h = MatMul(x, w) a = Relu(h) y = MatMul(a, v) z = If (c) <then_branch = t () => (float[2,2] p) "
      "<float[2,2] u "
      "= {4,3,2,1}> { p = MatMul(x, u) }, else_branch = e () => (float[2,2] q) { q = Identity(x) }> }");
  quant::Spec spec;
  spec.rules.push_back({{{"h"}, {}, {}}, false, {}, {}});
  QuantizeOutcome outcome;
  outcome.source = graph;
  ThreadPool pool(1);
  outcome.plan.placement = quant::place(graph, spec);
  for (const quant::ActivationSite& site : outcome.plan.placement.activations)
    outcome.plan.activations.push_back(quant::activation_from_range(site.format, {-1, 2, method}));
  outcome.plan.weights = quant::plan_weights(graph, outcome.plan.placement, "rtn", pool);
  Quantized q;
  q.written = quant::apply(graph, outcome.plan);
  report_outcome(q.report, outcome);
  q.report.layers.push_back({"y", "MatMul", 33.5, 0.999, 0.25});
  q.report.realized.push_back({"y", "MatMul", "int8", "int8 x int8 kernel", ""});
  return q;
}

TEST(Explain, ALayerWithCodes) {
  const Quantized q = quantized("mse");
  const Explanation e = explain_layer(q.report, q.written, "y");
  ASSERT_EQ(e.inputs.size(), 2u);
  EXPECT_EQ(e.inputs[0].tensor, "a");
  ASSERT_TRUE(e.inputs[0].quantized.has_value());
  EXPECT_EQ(e.inputs[0].quantized->method, "mse");
  EXPECT_EQ(e.inputs[0].quantized->rule, "input of MatMul");
  EXPECT_EQ(e.inputs[1].tensor, "v");
  ASSERT_TRUE(e.inputs[1].quantized.has_value());
  EXPECT_EQ(e.inputs[1].quantized->kind, "weight");
  ASSERT_TRUE(e.measured.has_value());
  EXPECT_EQ(e.measured->sqnr_db, 33.5);
  ASSERT_EQ(e.realized.size(), 1u);
  EXPECT_TRUE(e.skipped.empty());
}

TEST(Explain, ALayerLeftAloneAndOneInABranch) {
  const Quantized q = quantized("mse");
  const Explanation h = explain_layer(q.report, q.written, "h");
  ASSERT_EQ(h.skipped.size(), 1u);
  EXPECT_EQ(h.skipped[0].why, "rule 1 says so");
  EXPECT_FALSE(h.inputs[0].quantized.has_value());
  EXPECT_EQ(h.inputs[0].why_float, "rule 1 says so");
  const Explanation p = explain_layer(q.report, q.written, "z.then_branch/p");
  EXPECT_EQ(p.inputs[0].tensor, "z.then_branch/x");
  EXPECT_TRUE(p.inputs[0].quantized.has_value());
  EXPECT_TRUE(p.inputs[1].quantized.has_value());
}

TEST(Explain, AMisspeltNameGetsASuggestion) {
  const Quantized q = quantized("mse");
  try {
    explain_layer(q.report, q.written, "z.then_branch/pp");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_EQ(error.hint(), "did you mean 'z.then_branch/p'?");
  }
}

TEST(CompareRuns, EqualRunsAndOneDecisionThatDiffers) {
  Report a = quantized("mse").report, b = a, c = quantized("minmax").report;
  EXPECT_TRUE(compare_runs(a, b).same_result());
  const RunComparison other = compare_runs(a, c);
  EXPECT_FALSE(other.same_result());
  ASSERT_EQ(other.quantized.size(), 2u);  // a and the branch's x; weights and skipped rows are equal
  EXPECT_NE(other.quantized[0].a.find("mse"), std::string::npos);
  EXPECT_NE(other.quantized[0].b.find("minmax"), std::string::npos);
  b.metrics.push_back({"top1", 0.9, {}, {}, {}});
  b.layers[0].sqnr_db = 20;
  b.provenance.emplace_back("model", "x.onnx");
  const RunComparison more = compare_runs(a, b);
  ASSERT_EQ(more.metrics.size(), 1u);
  EXPECT_FALSE(more.metrics[0].a.has_value());
  EXPECT_EQ(more.metrics[0].b, 0.9);
  ASSERT_EQ(more.provenance.size(), 1u);
  ASSERT_EQ(more.layers.size(), 1u);
  EXPECT_EQ(more.layers[0].sqnr_db_b, 20);
}

}  // namespace
}  // namespace pare
