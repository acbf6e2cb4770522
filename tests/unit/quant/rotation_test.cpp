// Rotations keep the float function; regression on changed inputs is what its normal equations say.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "engine/build/lower/lower_cpu.h"
#include "engine/run/session.h"
#include "quant/rounding/retarget.h"
#include "quant/transform/rotation.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare::quant {
namespace {

TEST(Rotation, IsOrthogonalForAnySize) {
  for (const std::int64_t n : {1, 2, 3, 6, 12, 64, 88, 512}) {
    SCOPED_TRACE(n);
    const Rotation r(n, 7);
    std::vector<double> x(static_cast<std::size_t>(n)), y;
    double power = 0, turned = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      x[static_cast<std::size_t>(i)] = std::sin(static_cast<double>(i) * 1.7 + 0.3);
      power += x[static_cast<std::size_t>(i)] * x[static_cast<std::size_t>(i)];
    }
    y = x;
    r.apply(y.data());
    for (const double v : y) turned += v * v;
    // log2(n) butterflies and a sum of at most 11 terms, each rounded to 2^-53: far below 1e-13 of the norm.
    EXPECT_NEAR(turned, power, 1e-12 * power);
    // Rows of R: units turned. Each has length 1 and no part along others.
    const auto row = [&](std::int64_t i) {
      std::vector<double> unit(static_cast<std::size_t>(n));
      unit[static_cast<std::size_t>(i)] = 1;
      r.apply(unit.data());
      return unit;
    };
    for (std::int64_t i = 0; i < n; ++i)
      for (const std::int64_t j : {i, (i + 1) % n, (i + n / 2) % n}) {
        const std::vector<double> a = row(i), b = row(j);
        EXPECT_NEAR(std::inner_product(a.begin(), a.end(), b.begin(), 0.0), i == j ? 1 : 0, 1e-12);
      }
  }
}

TEST(Rotation, WithoutSignsIsTheHadamardMatrix) {
  const Rotation r(4, 0);
  const double expected[4][4] = {
      {.5, .5, .5, .5}, {.5, -.5, .5, -.5}, {.5, .5, -.5, -.5}, {.5, -.5, -.5, .5}};
  for (std::size_t i = 0; i < 4; ++i) {
    std::vector<double> unit(4, 0.0);
    unit[i] = 1;
    r.apply(unit.data());
    for (std::size_t j = 0; j < 4; ++j) EXPECT_EQ(unit[j], expected[i][j]);
  }
}

// "float[DIMS] NAME = {...}"
std::string numbers(const std::string& dims, const std::string& name, int count, double around) {
  std::string text = "float[" + dims + "] " + name + " = {";
  for (int i = 0; i < count; ++i)
    text += (i == 0 ? "" : ",") +
            std::to_string(around + 0.4 * std::sin(i * 1.3 + count + 0.1 * static_cast<double>(name.size())));
  return text + "}";
}

std::string decoder(const std::string& logits) {
  return "g (int64[1,T] ids) => (float[1,T,6] logits) <" + numbers("5,4", "table", 20, 0.1) + "," +
         numbers("4", "gain1", 4, 1) + "," + numbers("4,4", "wq", 16, 0) + "," + numbers("4,2", "wk", 8, 0) +
         "," + numbers("4,2", "wvalue", 8, 0) + "," + numbers("4,4", "wout", 16, 0) + "," +
         numbers("4", "second_gain", 4, 1) + "," + numbers("4,6", "head", 24, 0) +
         "> {\n"
         "h0 = Gather(table, ids)\n"
         "n1 = RMSNormalization<axis=-1>(h0, gain1)\n"
         "q = MatMul(n1, wq)\n k = MatMul(n1, wk)\n v = MatMul(n1, wvalue)\n"
         "a = Attention<q_num_heads=2, kv_num_heads=1>(q, k, v)\n"
         "o = MatMul(a, wout)\n h1 = Add(h0, o)\n"
         "n2 = RMSNormalization<axis=-1>(h1, second_gain)\n" +
         logits + "}";
}

std::vector<float> logits_of(const Graph& graph) {
  ThreadPool pool(2);
  SessionOptions options;
  options.pool = &pool;
  Session session(lower_for_cpu(graph).graph, options);
  const Tensor out =
      session.run({Tensor::from(DType::kI64, {1, 5}, std::vector<std::int64_t>{0, 3, 1, 4, 2})})[0];
  return {out.as<float>(), out.as<float>() + out.size()};
}

TEST(Rotation, TurnsStreamAndHeadsAndKeepsTheLogits) {
  Graph graph = text_graph(23, decoder("logits = MatMul(n2, head)\n"));
  const std::vector<float> before = logits_of(graph);
  const std::vector<float> old(graph.value(graph.find_value("wq")).constant.as<float>(),
                               graph.value(graph.find_value("wq")).constant.as<float>() + 16);
  const RotationResult result = rotate(graph, 3);
  EXPECT_EQ(result.streams, 1);
  EXPECT_EQ(result.attentions, 1);
  EXPECT_TRUE(result.notes.empty());
  verify(graph);
  // Another function of the same values would differ in the first digit. Sums of at most 4 terms, six layers
  // deep, of magnitude below 4: 1e-5 is 40 roundings.
  const std::vector<float> after = logits_of(graph);
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t i = 0; i < after.size(); ++i) EXPECT_NEAR(after[i], before[i], 1e-5);
  double moved = 0;
  for (std::size_t i = 0; i < 16; ++i)
    moved +=
        std::fabs(static_cast<double>(graph.value(graph.find_value("wq")).constant.as<float>()[i] - old[i]));
  EXPECT_GT(moved, 1);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(graph.value(graph.find_value("gain1")).constant.as<float>()[i], 1.0f);
}

TEST(Rotation, LeavesAStreamThatOthersReadAndSaysWhy) {
  Graph graph = text_graph(23, decoder("n3 = Relu(h1)\n n4 = Add(n3, n2)\n logits = MatMul(n4, head)\n"));
  const std::vector<float> before = logits_of(graph);
  const RotationResult result = rotate(graph, 3);
  EXPECT_EQ(result.streams, 0);
  ASSERT_EQ(result.notes.size(), 1u);
  EXPECT_NE(result.notes[0].find("not rotated"), std::string::npos) << result.notes[0];
  EXPECT_EQ(result.attentions, 1);  // the heads turn without it
  const std::vector<float> after = logits_of(graph);
  for (std::size_t i = 0; i < after.size(); ++i) EXPECT_NEAR(after[i], before[i], 1e-5);
}

struct Regression {
  WeightRows weight;
  std::vector<float> gram;
  std::vector<double> cross;
  std::vector<double> x, xh, r;  // [samples][n], [samples][n], [samples][m]
};

constexpr int kSamples = 200, kIns = 6, kOuts = 3;

Regression regression() {
  Regression p;
  std::mt19937 rng(5);
  std::normal_distribution<double> normal;
  p.weight.shape = RowShape::whole(kOuts, kIns);
  for (int i = 0; i < kOuts * kIns; ++i) p.weight.values.push_back(static_cast<float>(normal(rng)));
  for (int s = 0; s < kSamples; ++s) {
    const double common = normal(rng);
    for (int i = 0; i < kIns; ++i) {
      p.x.push_back(common + 0.5 * normal(rng));
      p.xh.push_back(p.x.back() + 0.3 * normal(rng));
    }
    for (int o = 0; o < kOuts; ++o) p.r.push_back(0.2 * common + 0.1 * normal(rng));
  }
  std::vector<double> gram(kIns * kIns, 0.0);
  p.cross.assign(kOuts * kIns, 0.0);
  for (int s = 0; s < kSamples; ++s)
    for (int j = 0; j < kIns; ++j) {
      const double xh = p.xh[static_cast<std::size_t>(s * kIns + j)] / kSamples;
      for (int i = 0; i < kIns; ++i)
        gram[static_cast<std::size_t>(i * kIns + j)] += p.xh[static_cast<std::size_t>(s * kIns + i)] * xh;
      for (int o = 0; o < kOuts; ++o) {
        double t = p.r[static_cast<std::size_t>(s * kOuts + o)];
        for (int i = 0; i < kIns; ++i)
          t += static_cast<double>(p.weight.values[static_cast<std::size_t>(o * kIns + i)]) *
               (p.x[static_cast<std::size_t>(s * kIns + i)] - p.xh[static_cast<std::size_t>(s * kIns + i)]);
        p.cross[static_cast<std::size_t>(o * kIns + j)] += t * xh;
      }
    }
  p.gram.assign(gram.begin(), gram.end());
  return p;
}

// Mean of (W x + r - V xh) xh^T, largest entry, and of the squared error.
std::pair<double, double> judge(const Regression& p, const WeightRows& v) {
  std::vector<double> slope(kOuts * kIns, 0.0);
  double loss = 0;
  for (int s = 0; s < kSamples; ++s)
    for (int o = 0; o < kOuts; ++o) {
      double e = p.r[static_cast<std::size_t>(s * kOuts + o)];
      for (int i = 0; i < kIns; ++i)
        e += static_cast<double>(p.weight.values[static_cast<std::size_t>(o * kIns + i)]) *
                 p.x[static_cast<std::size_t>(s * kIns + i)] -
             static_cast<double>(v.values[static_cast<std::size_t>(o * kIns + i)]) *
                 p.xh[static_cast<std::size_t>(s * kIns + i)];
      loss += e * e / kSamples;
      for (int j = 0; j < kIns; ++j)
        slope[static_cast<std::size_t>(o * kIns + j)] +=
            e * p.xh[static_cast<std::size_t>(s * kIns + j)] / kSamples;
    }
  double largest = 0;
  for (const double g : slope) largest = std::max(largest, std::fabs(g));
  return {largest, loss};
}

TEST(Retarget, IsTheLeastSquaresWeightForTheInputsThatComeIn) {
  const Regression p = regression();
  WeightRows v = p.weight;
  ASSERT_TRUE(retarget(v, p.gram, p.cross, 0));
  // The gradient is zero up to the rounding of G and V to float32: entries below 3, six terms, 2^-24 each.
  EXPECT_LT(judge(p, v).first, 5e-6);
  EXPECT_GT(judge(p, p.weight).first, 0.02);
  EXPECT_LT(judge(p, v).second, 0.8 * judge(p, p.weight).second);
  // A ridge lies between the two, and a huge one keeps the weight.
  WeightRows between = p.weight, kept = p.weight;
  ASSERT_TRUE(retarget(between, p.gram, p.cross, 0.1));
  EXPECT_GT(judge(p, between).second, judge(p, v).second);
  EXPECT_LT(judge(p, between).second, judge(p, p.weight).second);
  ASSERT_TRUE(retarget(kept, p.gram, p.cross, 1e9));
  for (std::size_t i = 0; i < kept.values.size(); ++i) EXPECT_NEAR(kept.values[i], p.weight.values[i], 1e-6);
}

TEST(Retarget, RefusesWhatHasNoSolution) {
  Regression p = regression();
  WeightRows v = p.weight;
  EXPECT_FALSE(retarget(v, std::vector<float>(kIns * kIns, 0.0f), p.cross, 0.01));  // a dead input
  p.gram[0] = std::nanf("");
  EXPECT_FALSE(retarget(v, p.gram, p.cross, 0.01));
  p = regression();
  p.cross[3] = HUGE_VAL;
  EXPECT_FALSE(retarget(v, p.gram, p.cross, 0.01));
  EXPECT_EQ(v.values, p.weight.values);
}

}  // namespace
}  // namespace pare::quant
