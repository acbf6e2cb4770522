// Bias correction removes the mean error.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/run/session.h"
#include "quant/bias_correction.h"
#include "tests/unit/quant/build_graph.h"

namespace pare::quant {
namespace {

Tensor random_input(Dims dims, unsigned seed, float mean = 0) {
  Tensor tensor = Tensor::allocate(DType::kF32, std::move(dims));
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(mean);
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.mut<float>()[i] = normal(rng);
  return tensor;
}

std::vector<float> run(const Graph& graph, const Tensor& x) {
  ThreadPool pool(1);
  Session session(std::make_shared<Graph>(graph), {&pool, true, false});
  const Tensor y = session.run({x})[0];
  return {y.as<float>(), y.as<float>() + y.size()};
}

// With ranges far too small nearly everything is clipped, which moves the mean of each output. The
// correction is exact in expectation, so the mean error must fall by far more than half.
TEST(BiasCorrection, TakesTheMeanErrorOut) {
  Graph graph = test::residual_block();
  ThreadPool pool(1);
  Spec spec;
  spec.ops = {"Gemm"};
  Plan plan;
  plan.placement = place(graph, spec);
  ASSERT_EQ(plan.placement.activations.size(), 1u);
  plan.weights = plan_weights(graph, plan.placement, "search", pool);
  plan.activations.push_back(activation_from_range(plan.placement.activations[0].format, {0, 0.3, "test"}));
  const std::vector<BiasTarget> targets = find_bias_targets(graph, plan.placement);
  ASSERT_EQ(targets.size(), 1u);

  const Tensor x = random_input({64, 8, 6, 6}, 4);
  InputMeans means{std::vector<double>(16), std::vector<double>(16)};
  {
    Session session(std::make_shared<Graph>(graph), {&pool, true, false});
    session.watch(plan.placement.activations[0].value, [&](ValueId, const TensorView& v) {
      for (std::int64_t i = 0; i < v.size(); ++i) {
        const double value = static_cast<double>(v.as<float>()[i]),
                     s = static_cast<double>(plan.activations[0].scale);
        const double code = std::fmin(127, std::fmax(-128, std::nearbyint(value / s)));
        means.mean[static_cast<std::size_t>(i % 16)] += value / 64;
        means.error[static_cast<std::size_t>(i % 16)] += (code * s - value) / 64;
      }
    });
    session.run({x});
  }
  const std::vector<float> exact = run(graph, x);
  const auto mean_error = [&](const Graph& source) {
    const std::vector<float> y = run(apply(source, plan), x);
    std::vector<double> error(5, 0.0);
    for (std::size_t i = 0; i < y.size(); ++i)
      error[i % 5] += (static_cast<double>(y[i]) - static_cast<double>(exact[i])) / 64;
    double worst = 0;
    for (const double e : error) worst = std::max(worst, std::fabs(e));
    return worst;
  };
  const double before = mean_error(graph);
  Graph corrected = graph;
  correct_biases(corrected, plan, targets, {means});
  EXPECT_GT(before, 1e-2);
  EXPECT_LT(mean_error(corrected), before * 1e-3);
}

// A weight alone, judged by what each column of its rows is multiplied with: d = (Wq - W) E[x].
TEST(BiasCorrection, OfAWeightWhoseInputStaysFloat) {
  Graph graph = test::residual_block();
  ThreadPool pool(1);
  Spec spec;
  spec.activations = {};
  spec.ops = {"Gemm"};
  spec.method = "rtn";
  Plan plan;
  plan.placement = place(graph, spec);
  plan.weights = plan_weights(graph, plan.placement, "rtn", pool);
  const std::vector<BiasTarget> targets = find_bias_targets(graph, plan.placement);
  ASSERT_EQ(targets.size(), 1u);
  EXPECT_EQ(targets[0].activation, kFloatInput);
  const Tensor x = random_input({64, 8, 6, 6}, 4);
  InputMeans means;
  means.columns.assign(16, 0.0);
  ValueId flat = graph.node(targets[0].node).in[0];
  {
    Session session(std::make_shared<Graph>(graph), {&pool, true, false});
    session.watch(flat, [&](ValueId, const TensorView& v) {
      for (std::int64_t i = 0; i < v.size(); ++i)
        means.columns[static_cast<std::size_t>(i % 16)] += static_cast<double>(v.as<float>()[i]) / 64;
    });
    session.run({x});
  }
  const std::vector<float> exact = run(graph, x);
  const auto mean_errors = [&](const Graph& source) {
    const std::vector<float> y = run(apply(source, plan), x);
    std::vector<double> error(5, 0.0);
    for (std::size_t i = 0; i < y.size(); ++i)
      error[i % 5] += (static_cast<double>(y[i]) - static_cast<double>(exact[i])) / 64;
    return error;
  };
  const std::vector<double> d = mean_output_error(graph, plan, targets[0], means);
  const std::vector<double> measured = mean_errors(graph);
  for (std::size_t o = 0; o < 5; ++o) EXPECT_NEAR(d[o], measured[o], 1e-5);
  Graph corrected = graph;
  subtract_from_bias(corrected, targets[0], d);
  for (const double e : mean_errors(corrected)) EXPECT_NEAR(e, 0, 1e-5);
}

TEST(BiasCorrection, HoldsOnlyWhenOtherSamplesAgree) {
  EXPECT_TRUE(correction_holds({1, 2}, {1.1, 1.9}));
  EXPECT_FALSE(correction_holds({1, 2}, {-1, 0.1}));
  EXPECT_FALSE(correction_holds({0, 0}, {1, 1}));  // nothing to take out
  EXPECT_FALSE(correction_holds({std::nan(""), 0}, {1, 1}));
}

}  // namespace
}  // namespace pare::quant
