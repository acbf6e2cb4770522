// evaluate() on a model small enough to work out by hand: y = x W with an identity W, and the same with x
// quantized in steps of 0.5. Both arithmetics, layers, clipping, the ranges that the candidate itself states.
#include "eval/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "datasets/npy.h"
#include "engine/base/error.h"
#include "engine/base/paths.h"
#include "engine/ir/schema.h"
#include "eval/pair_layers.h"

namespace pare {
namespace {

constexpr std::int64_t kSamples = 5, kClasses = 3;

ValueId add_op(Graph& graph, const std::string& op, const std::string& out_name, std::vector<ValueId> in) {
  Value value;
  value.name = value.origin = out_name;
  Node node;
  node.op = op;
  node.name = op + "_" + out_name;
  node.in = std::move(in);
  node.out = {graph.add_value(std::move(value))};
  const ValueId out = node.out[0];
  graph.add_node(std::move(node));
  return out;
}

// scale 0: float. Weight codes of 64 at a scale of 1/64 are the identity exactly.
Graph model(float scale, bool weight_codes = true) {
  Graph graph;
  graph.opset = 17;
  Value x;
  x.name = x.origin = "x";
  x.dtype = DType::kF32;
  x.shape = Shape({Dim::named("batch"), Dim::of(kClasses)});
  ValueId at = graph.add_value(std::move(x));
  graph.inputs.push_back(at);
  ValueId weight =
      graph.add_constant("w", Tensor::from<float>(DType::kF32, {3, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1}));
  if (scale > 0 && weight_codes) {
    const std::vector<std::int8_t> codes = {64, 0, 0, 0, 64, 0, 0, 0, 64};
    const ValueId q = graph.add_constant("w_q", Tensor::from(DType::kI8, {3, 3}, codes));
    weight =
        add_op(graph, "DequantizeLinear", "w_dq", {q, graph.add_constant("w_s", Tensor::scalar(0.015625f))});
  }
  if (scale > 0) {
    const ValueId s = graph.add_constant("s", Tensor::scalar(scale));
    const std::int8_t zero_code = 0;
    const ValueId z = graph.add_constant("z", Tensor::copy_of(DType::kI8, {}, &zero_code, 1));
    at =
        add_op(graph, "DequantizeLinear", "x_dq", {add_op(graph, "QuantizeLinear", "x_q", {at, s, z}), s, z});
  }
  graph.outputs.push_back(add_op(graph, "MatMul", "y", {at, weight}));
  infer_shapes(graph);
  return graph;
}

class EvaluateTest : public testing::Test {
 protected:
  // Sample 3 loses its label to rounding: 0.3 and 0.4 both become 0.5, and of equal outputs the lower index
  // is larger. Sample 4 clips: 127 * 0.5 = 63.5 is the largest value that a code holds.
  void SetUp() override {
    folder_ = make_temporary_directory();
    const std::vector<float> x = {1, 0, 0, 0, 2, 0, 0, 0, 3, 0.3f, 0.4f, 0, 100, 0, 0};
    const Tensor images = Tensor::from(DType::kF32, {kSamples, kClasses}, x);
    write_npy(join_path(folder_, "x.npy"), images.view());
    write_npy(join_path(folder_, "labels.npy"), Tensor::ints({0, 1, 2, 1, 0}).view());
  }
  void TearDown() override { remove_tree(folder_); }

  DatasetSpec spec() const {
    DatasetSpec s;
    s.path = join_path(folder_, "x.npy");
    s.labels = join_path(folder_, "labels.npy");
    s.batch = 2;
    return s;
  }
  EvaluateOptions options() {
    EvaluateOptions o;
    o.metrics = {"top1", "top5", "output_sqnr_db", "output_cosine", "max_abs", "clipping_rate"};
    o.layer_samples = 4;
    o.pool = &pool_;
    return o;
  }

  std::string folder_;
  ThreadPool pool_{2};
};

TEST_F(EvaluateTest, FiguresAreThoseOfTheFormulas) {
  Dataset data(spec(), model_inputs(model(0)));
  const Evaluation e = evaluate(model(0), model(0.5f), data, options());
  EXPECT_EQ(e.samples, kSamples);
  EXPECT_EQ(e.layer_samples, 4);
  EXPECT_EQ(e.reference.at("top1"), 1.0);
  EXPECT_EQ(e.candidate.at("top1"), 0.8);
  EXPECT_EQ(e.candidate.at("top5"), 1.0);
  EXPECT_EQ(e.reference.count("output_sqnr_db"), 0u);
  const double signal = 1 + 4 + 9 + 0.09 + 0.16 + 1e4, noise = 0.04 + 0.01 + 36.5 * 36.5;
  EXPECT_NEAR(e.candidate.at("output_sqnr_db"), 10 * std::log10(signal / noise), 1e-6);
  EXPECT_EQ(e.candidate.at("max_abs"), 36.5);
  EXPECT_EQ(e.candidate.at("clipping_rate"), 0);  // in the first 4 samples nothing clips
  ASSERT_EQ(e.layers.size(), 1u);
  EXPECT_EQ(e.layers[0].name, "y");
  EXPECT_EQ(e.layers[0].op, "MatMul");
  EXPECT_NEAR(e.layers[0].sqnr_db, 10 * std::log10((signal - 1e4) / 0.05), 1e-5);
  EXPECT_EQ(e.integer.at("top1"), 0.8);
  EXPECT_EQ(e.arithmetic_top1_differs, 0);
  ASSERT_EQ(e.realized.size(), 1u);
  EXPECT_EQ(e.realized[0].why, "");
  EXPECT_EQ(e.not_finite_candidate, 0);
}

TEST_F(EvaluateTest, WhatNoIntegerKernelTakesRunsOnce) {
  Dataset data(spec(), model_inputs(model(0)));
  const Evaluation e = evaluate(model(0), model(0.5f, false), data, options());
  EXPECT_EQ(e.candidate.at("top1"), 0.8);
  EXPECT_TRUE(e.integer.empty());
  EXPECT_FALSE(e.arithmetic_sqnr_db.has_value());
  for (const Realized& row : e.realized) EXPECT_NE(row.why, "") << row.node;
}

TEST_F(EvaluateTest, NothingDependsOnBatchOrThreads) {
  Dataset data(spec(), model_inputs(model(0)));
  const Evaluation want = evaluate(model(0), model(0.5f), data, options());
  for (const std::int64_t batch : {1, 3, 5, 64}) {
    ThreadPool one(1);
    EvaluateOptions other = options();
    other.batch = batch;
    other.pool = &one;
    const Evaluation got = evaluate(model(0), model(0.5f), data, other);
    EXPECT_EQ(got.candidate, want.candidate) << batch;
    EXPECT_EQ(got.integer, want.integer) << batch;
    EXPECT_EQ(got.reference, want.reference) << batch;
    EXPECT_EQ(got.layers[0].sqnr_db, want.layers[0].sqnr_db) << batch;
  }
}

TEST_F(EvaluateTest, ClippingByWhatTheCandidateStates) {
  const std::vector<ClipRange> ranges = quantized_ranges(model(0.5f));
  ASSERT_EQ(ranges.size(), 1u);
  EXPECT_EQ(ranges[0].tensor, "x");
  EXPECT_EQ(ranges[0].low, -64);
  EXPECT_EQ(ranges[0].high, 63.5);
  Dataset data(spec(), model_inputs(model(0)));
  EvaluateOptions all = options();
  all.layer_samples = 0;  // every sample
  const Evaluation e = evaluate(model(0), model(0.5f), data, all);
  EXPECT_EQ(e.candidate.at("clipping_rate"), 1.0 / 15);
  ASSERT_EQ(e.clipping.size(), 1u);
  EXPECT_EQ(e.clipping[0].share, 1.0 / 15);
}

TEST_F(EvaluateTest, CollectedOutputsScoreTheSame) {
  Dataset data(spec(), model_inputs(model(0)));
  const BatchOutputs a = collect_outputs(model(0), data, {0, kSamples}, options());
  const BatchOutputs b = collect_outputs(model(0.5f), data, {0, kSamples}, options());
  const Evaluation e = evaluate(model(0), model(0.5f), data, options());
  EXPECT_EQ(output_sqnr_db(a, b), e.candidate.at("output_sqnr_db"));
  ASSERT_FALSE(a.empty());
  EXPECT_EQ(a[0].at(0).dims()[1], kClasses);
}

TEST_F(EvaluateTest, OneModelAlone) {
  Dataset data(spec(), model_inputs(model(0)));
  EvaluateOptions alone = options();
  alone.metrics = {"top1"};
  EXPECT_EQ(evaluate_alone(model(0.5f), data, alone).at("top1"), 0.8);
  alone.metrics = {"output_sqnr_db"};
  EXPECT_THROW(evaluate_alone(model(0), data, alone), Error);
}

TEST_F(EvaluateTest, OtherModelsAndLabelsAreRefused) {
  Dataset data(spec(), model_inputs(model(0)));
  Graph other = model(0.5f);
  other.rename(other.inputs[0], "z");
  EXPECT_THROW(evaluate(model(0), other, data, options()), Error);
  DatasetSpec bare = spec();
  bare.labels.clear();
  Dataset unlabelled(bare, model_inputs(model(0)));
  EXPECT_THROW(evaluate(model(0), model(0.5f), unlabelled, options()), Error);
}

}  // namespace
}  // namespace pare
