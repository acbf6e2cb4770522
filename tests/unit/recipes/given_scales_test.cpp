// A TensorRT calibration cache in place of statistics: its scales come out in every bit, what it lacks stays
// float, and names of nothing are said.
#include "recipes/quantize/given_scales.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "datasets/random.h"
#include "engine/base/error.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/simplify.h"
#include "quant/audit.h"
#include "recipes/quantize/quantize_model.h"
#include "tests/unit/test_paths.h"

namespace pare {
namespace {

TEST(GivenScales, EveryScaleComesBackInEveryBit) {
  const quant::Format int8{DType::kI8, quant::Granularity::kTensor, 0, true};
  SplitMix random(3);
  for (int i = 0; i < 100'000; ++i) {
    const auto scale = std::bit_cast<float>(static_cast<std::uint32_t>(random.next()) & 0x7FFFFFFFu);
    if (!std::isnormal(scale)) continue;
    ASSERT_EQ(quant::activation_from_range(int8, given_range({"t", scale})).scale, scale);
  }
  EXPECT_EQ(quant::activation_from_range(int8, given_range({"t", 0.0f})).scale, 1.0f);
}

TEST(GivenScales, QuantizeWhatTheyKnowAndNothingElse) {
  const Graph original = load_model(source_path("examples/fashion/resnet.onnx"));
  Graph graph = original;
  SimplifyOptions options;
  options.self_check = false;
  simplify(graph, options);
  quant::Spec spec;
  spec.method = "rtn";
  const quant::Placement whole = quant::place(graph, spec);
  ASSERT_GT(whole.activations.size(), 4u);
  const auto name_of = [&](std::size_t i) { return graph.value(whole.activations[i].value).name; };
  TrtCache cache;
  cache.entries = {{name_of(0), 0.0123456789f}, {"of: another model", 1.0f}, {name_of(3), 1.0f / 3}};
  EXPECT_EQ(unmatched_names(cache, original), std::vector<std::string>{"of: another model"});
  EXPECT_EQ(unmatched_sentence({"of: another model"}, 3),
            "1 of 3 names in the calibration cache match nothing in the model: 'of: another model'");

  ThreadPool pool(2);
  QuantizeInput input;
  input.graph = &graph;
  input.pool = &pool;
  input.given = &cache;
  QuantizeChoices choices;
  choices.spec = spec;
  const QuantizeOutcome outcome = quantize_model(input, choices);
  ASSERT_EQ(outcome.plan.activations.size(), 2u);
  EXPECT_EQ(outcome.plan.activations[0].scale, 0.0123456789f);
  EXPECT_EQ(outcome.plan.activations[1].scale, 1.0f / 3);
  EXPECT_EQ(outcome.plan.activations[0].range.method, "calibration cache");
  EXPECT_LT(outcome.plan.weights.size(), whole.weights.size());
  std::size_t unknown = 0;
  for (const quant::Skipped& row : outcome.plan.placement.skipped)
    unknown += row.why.find("calibration cache has no scale") != std::string::npos ? 1 : 0;
  EXPECT_EQ(unknown + outcome.plan.weights.size(), whole.weights.size());
  EXPECT_TRUE(quant::audit(outcome.source, outcome.plan, outcome.quantized).passed());

  // FP8 takes the same largest magnitude; zero points have no place in a cache.
  choices.spec.activations.dtype = choices.spec.weights.dtype = DType::kE4M3FN;
  for (const quant::ActivationPlan& plan : quantize_model(input, choices).plan.activations)
    EXPECT_FLOAT_EQ(plan.scale, static_cast<float>(127.0 / 448 * plan.range.high / 127.0));
  choices.spec = spec;
  choices.spec.activations.dtype = DType::kU8;
  choices.spec.activations.symmetric = false;
  EXPECT_THROW(quantize_model(input, choices), Error);
}

}  // namespace
}  // namespace pare
