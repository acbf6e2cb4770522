// Calibration of the example models on their real images: the same bytes for any batches, order, threads,
// parts.
#include <gtest/gtest.h>

#include "calib/calibrate.h"
#include "calib/ranges.h"
#include "datasets/npy.h"
#include "engine/base/isa.h"
#include "graphsurgeon/graph_hash.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/simplify.h"
#include "tests/unit/datasets/temporary.h"
#include "tests/unit/test_paths.h"

namespace pare {
namespace {

constexpr int kSamples = 24;

class Fashion : public testing::TestWithParam<const char*> {
 protected:
  Fashion() : graph(load_model(source_path(std::string("examples/fashion/") + GetParam() + ".onnx"))) {
    simplify(graph);
    for (const NodeId id : graph.nodes()) {
      const Node& node = graph.node(id);
      if (node.op != "Conv" && node.op != "Gemm" && node.op != "MatMul") continue;
      for (const ValueId value : node.in) watch(value);
    }
    for (const ValueId value : graph.outputs) watch(value);
    hash = hex(graph_hash(graph));
    const Tensor all = read_npy(source_path("examples/fashion/fashion_calibration_images.npy"));
    images.assign(all.as<std::uint8_t>(), all.as<std::uint8_t>() + kSamples * 784);
  }
  void watch(ValueId value) {
    if (value == ValueId::kNone || graph.is_constant(value)) return;
    for (const CalibratedValue& seen : values)
      if (seen.id == value) return;
    values.push_back({value, 1});
  }
  // The bytes of the statistics file of some images, in the order given.
  Statistics run(const std::vector<int>& order, std::int64_t batch, int threads) {
    std::vector<std::uint8_t> chosen;
    for (const int i : order)
      chosen.insert(chosen.end(), images.begin() + i * 784, images.begin() + (i + 1) * 784);
    write_npy(folder.file("x.npy"),
              Tensor::from(DType::kU8, {static_cast<std::int64_t>(order.size()), 28, 28, 1}, chosen).view());
    Dataset data(
        parse_data_argument(folder.file("x.npy") + ":layout=nhwc_to_nchw,scale=1/255,mean=0.2860,std=0.3530"),
        model_inputs(graph));
    ThreadPool pool(threads);
    CalibrateOptions options;
    options.pool = &pool;
    options.batch = batch;
    options.graph_hash = hash;
    return calibrate(graph, values, data, options).statistics;
  }
  std::string file_of(const Statistics& statistics) {
    save_statistics(statistics, folder.file("s.h5"));
    return sha256_of_file(folder.file("s.h5"));
  }

  Graph graph;
  std::vector<CalibratedValue> values;
  std::string hash;
  std::vector<std::uint8_t> images;
  TemporaryFolder folder;
};

TEST_P(Fashion, SameBytesHoweverItIsCalibrated) {
  std::vector<int> order, backwards;
  for (int i = 0; i < kSamples; ++i) order.push_back(i);
  backwards.assign(order.rbegin(), order.rend());
  const Statistics whole = run(order, kSamples, 2);
  const std::string expected = file_of(whole);
  EXPECT_GT(whole.tensors.size(), 10u);
  for (const TensorStats& t : whole.tensors) {
    EXPECT_TRUE(t.seen()) << t.name;
    EXPECT_EQ(t.nan + t.positive_inf + t.negative_inf, 0u) << t.name;
    EXPECT_EQ(all_methods(t, {DType::kI8, true, false}).size(), 6u);
  }
  EXPECT_EQ(file_of(run(order, 1, 1)), expected);
  EXPECT_EQ(file_of(run(order, 7, 1)), expected);
  EXPECT_EQ(file_of(run(order, 7, 2)), expected);
  EXPECT_EQ(file_of(run(backwards, 16, 2)), expected);
  const std::vector<int> first(order.begin(), order.begin() + 9), second(order.begin() + 9, order.end());
  EXPECT_EQ(file_of(merge(run(second, 15, 2), run(first, 5, 1))), expected);
}

INSTANTIATE_TEST_SUITE_P(Models, Fashion, testing::Values("resnet", "mobilenet", "vit"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace pare
