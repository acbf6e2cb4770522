#include "calib/calibrate.h"

#include <gtest/gtest.h>

#include <cstring>

#include "calib/ranges.h"
#include "datasets/npy.h"
#include "engine/run/session.h"
#include "tests/unit/calib/values.h"
#include "tests/unit/datasets/errors.h"
#include "tests/unit/datasets/temporary.h"

namespace pare {
namespace {

// y = x W with x [batch,4] and W [4,3].
struct Toy {
  Graph graph;
  ValueId x, y;

  explicit Toy(float weight = 1) {
    Value input;
    input.name = "x";
    input.dtype = DType::kF32;
    input.shape = Shape({Dim::named("batch"), Dim::of(4)});
    x = graph.add_value(input);
    std::vector<float> w(12);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = weight * static_cast<float>(static_cast<int>(i) - 5);
    const ValueId weights = graph.add_constant("w", Tensor::from<float>(DType::kF32, {4, 3}, w));
    Value output;
    output.name = "y";
    output.dtype = DType::kF32;
    output.shape = Shape({Dim::named("batch"), Dim::of(3)});
    y = graph.add_value(output);
    Node node;
    node.op = "MatMul";
    node.name = "product";
    node.in = {x, weights};
    node.out = {y};
    graph.add_node(node);
    graph.inputs = {x};
    graph.outputs = {y};
  }
};

class Calibrate : public testing::Test {
 protected:
  DatasetSpec data(const std::vector<float>& values, const std::string& keys = "") {
    write_npy(
        folder.file("x.npy"),
        Tensor::from<float>(DType::kF32, {static_cast<std::int64_t>(values.size()) / 4, 4}, values).view());
    return parse_data_argument(folder.file("x.npy") + (keys.empty() ? "" : ":" + keys));
  }
  CalibrateResult run(const DatasetSpec& spec, std::int64_t batch, int threads, const Toy& toy = Toy()) {
    ThreadPool pool(threads);
    Dataset set(spec, model_inputs(toy.graph));
    CalibrateOptions options;
    options.pool = &pool;
    options.batch = batch;
    options.graph_hash = std::string(64, 'e');
    return calibrate(toy.graph, {{toy.x, 1}, {toy.y, -1}}, set, options);
  }
  TemporaryFolder folder;
};

// cases.md C5 too: inputs and outputs of the graph are calibrated like everything else.
TEST_F(Calibrate, CountsInputsAndOutputsExactly) {
  const std::vector<float> values = normal_values(4 * 500, 3);
  const CalibrateResult result = run(data(values), 64, 2);
  ASSERT_EQ(result.statistics.tensors.size(), 2u);
  const TensorStats& x = result.statistics.at("x");
  TensorStats expected = count_plainly(values, "x");
  expected.channel_amax = x.channel_amax;
  EXPECT_TRUE(x == expected);
  for (std::size_t c = 0; c < 4; ++c) {
    float largest = 0;
    for (std::size_t i = c; i < values.size(); i += 4) largest = std::max(largest, std::abs(values[i]));
    EXPECT_EQ(x.channel_amax.at(c), largest);
  }
  const TensorStats& y = result.statistics.at("y");
  EXPECT_EQ(y.total, 1500u);
  EXPECT_NEAR(y.amax() / (20 * x.amax()), 0.5, 0.5);
  EXPECT_EQ(result.statistics.samples, 500);
  EXPECT_EQ(result.statistics.graph_hash, std::string(64, 'e'));
  EXPECT_EQ(result.batches, 8);
  EXPECT_EQ(result.values, 3500);
  EXPECT_GT(result.predicted_rss_bytes, 0);
}

TEST_F(Calibrate, SameBytesForAnyBatchOrderAndThreads) {
  const std::vector<float> values = normal_values(4 * 512, 4);
  const auto file_of = [&](const DatasetSpec& spec, std::int64_t batch, int threads) {
    save_statistics(run(spec, batch, threads).statistics, folder.file("s.h5"));
    return sha256_of_file(folder.file("s.h5"));
  };
  const std::string expected = file_of(data(values), 512, 1);
  for (const std::int64_t batch : {1, 7, 64, 512})
    for (const int threads : {1, 2})
      for (const char* keys : {"", "shuffle=9"})
        EXPECT_EQ(file_of(data(values, keys), batch, threads), expected);
  const std::vector<float> first(values.begin(), values.begin() + 800),
      second(values.begin() + 800, values.end());
  const Statistics a = run(data(first), 64, 1).statistics, b = run(data(second), 7, 2).statistics;
  save_statistics(merge(b, a), folder.file("s.h5"));
  EXPECT_EQ(sha256_of_file(folder.file("s.h5")), expected);
}

TEST_F(Calibrate, CountsNanThatTheModelMakes) {
  std::vector<float> values(40, 1.0f);
  const Toy overflow(1e38f);  // 1e38 * (-5 - 2 + 1 + 4 ...): some outputs are infinite
  values[0] = 3e38f;
  const CalibrateResult result = run(data(values), 4, 1, overflow);
  EXPECT_GT(result.statistics.inf_count() + result.statistics.nan_count(), 0u);
}

TEST_F(Calibrate, Refuses) {
  EXPECT_ERROR(run(data(std::vector<float>(40, 0.0f)), 4, 1), "usage", "'x' is zero in all samples");
  std::vector<float> values(40, 1.0f);
  values[5] = std::nanf("");
  EXPECT_ERROR(run(data(values), 4, 1), "bad_file", "1 NaN");
  EXPECT_EQ(run(data(values, "max_nonfinite=1"), 4, 1).statistics.at("x").nan, 1u);
  const Toy toy;
  ThreadPool pool(1);
  Dataset set(data(std::vector<float>(40, 1.0f)), model_inputs(toy.graph));
  CalibrateOptions options;
  options.pool = &pool;
  EXPECT_ERROR(calibrate(toy.graph, {}, set, options), "usage", "nothing to calibrate");
}

TEST(LiveBytes, FollowLifetimes) {
  // x -> a -> b -> c, all [batch,10] float32: two are alive at once.
  Graph graph;
  Value v;
  v.dtype = DType::kF32;
  v.shape = Shape({Dim::named("batch"), Dim::of(10)});
  v.name = "x";
  ValueId last = graph.add_value(v);
  graph.inputs = {last};
  for (const char* name : {"a", "b", "c"}) {
    v.name = name;
    const ValueId next = graph.add_value(v);
    Node node;
    node.op = "Relu";
    node.in = {last};
    node.out = {next};
    graph.add_node(node);
    last = next;
  }
  graph.outputs = {last};
  EXPECT_EQ(live_activation_bytes(graph, 8), 2 * 8 * 10 * 4);

  // In a branch the same counts on top of what is alive outside.
  Graph outer;
  Value condition;
  condition.name = "c";
  condition.dtype = DType::kBool;
  condition.shape = Shape(std::vector<Dim>{});
  outer.inputs = {outer.add_value(condition)};
  v.name = "y";
  Node branch;
  branch.op = "If";
  branch.in = {outer.inputs[0]};
  branch.out = {outer.add_value(v)};
  branch.attrs["then_branch"] = std::make_shared<Graph>(graph);
  branch.attrs["else_branch"] = std::make_shared<Graph>();
  outer.add_node(branch);
  outer.outputs = {branch.out[0]};
  EXPECT_EQ(live_activation_bytes(outer, 8), 3 * 8 * 10 * 4);
}

}  // namespace
}  // namespace pare
