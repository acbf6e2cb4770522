// Real models against what ONNX Runtime computed: as read, and after simplify.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "datasets/npy.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "engine/run/session.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/passes/edit.h"
#include "graphsurgeon/simplify.h"
#include "tests/unit/test_paths.h"

namespace pare {
namespace {

std::vector<Tensor> run(const Graph& graph, const std::vector<Tensor>& inputs) {
  static ThreadPool pool(2);
  SessionOptions options;
  options.pool = &pool;
  return Session(std::make_shared<const Graph>(graph), options).run(inputs);
}

// --- the three classifiers in the tree

Tensor fashion_images(std::int64_t count) {
  const Tensor pixels = read_npy(source_path("examples/fashion/fashion_test_images.npy"));
  Tensor images = Tensor::allocate(DType::kF32, {count, 1, 28, 28});
  for (std::int64_t i = 0; i < images.size(); ++i)
    images.mut<float>()[i] =
        (static_cast<float>(pixels.as<std::uint8_t>()[i]) * (1.0f / 255.0f) - 0.2860f) / 0.3530f;
  return images;
}

int hits(const Tensor& logits) {
  const Tensor labels = read_npy(source_path("examples/fashion/fashion_test_labels.npy"));
  const std::vector<std::int64_t> wanted = labels.to_ints();
  int count = 0;
  for (std::int64_t i = 0; i < logits.dims()[0]; ++i) {
    const float* row = logits.as<float>() + i * 10;
    count += std::max_element(row, row + 10) - row == wanted[static_cast<std::size_t>(i)];
  }
  return count;
}

struct Classifier {
  const char* name;
  int hits;  // of the first 200 test images, ONNX Runtime 1.32 with graph optimizations off
  std::int64_t nodes;
};

void PrintTo(const Classifier& c, std::ostream* out) { *out << c.name; }

class Fashion : public testing::TestWithParam<Classifier> {};

TEST_P(Fashion, SameAnswersAsOnnxRuntimeBeforeAndAfterSimplify) {
  const Classifier& c = GetParam();
  Graph graph = load_model(source_path(std::string("examples/fashion/") + c.name + ".onnx"));
  const Tensor images = fashion_images(200);
  const Tensor before = run(graph, {images})[0];
  EXPECT_EQ(hits(before), c.hits);

  const SimplifyReport report = simplify(graph);
  EXPECT_TRUE(report.check.done) << report.check.why_not;
  EXPECT_EQ(report.check.runs, 2);
  EXPECT_LT(report.check.max_abs_diff, 1e-4);
  EXPECT_EQ(report.nodes_after, c.nodes);
  EXPECT_EQ(static_cast<std::int64_t>(graph.node_count()), c.nodes);
  EXPECT_EQ(hits(run(graph, {images})[0]), c.hits);
}

INSTANTIATE_TEST_SUITE_P(Models, Fashion,
                         testing::Values(Classifier{"resnet", 191, 48}, Classifier{"mobilenet", 189, 75},
                                         Classifier{"vit", 180, 179}),
                         [](const auto& p) { return std::string(p.param.name); });

// --- recorded inputs and outputs of others

struct Recorded {
  const char* folder;
  double relative;  // of the largest output; a sum of n products in another order differs by about sqrt(n) *
                    // 6e-8
};

void PrintTo(const Recorded& r, std::ostream* out) { *out << r.folder; }

class Expected : public testing::TestWithParam<Recorded> {};

void compare(const std::vector<Tensor>& got, const std::string& folder, double relative) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    const Tensor wanted = read_npy(folder + fmt::format("/out_{}.npy", i));
    ASSERT_EQ(got[i].dims(), wanted.dims());
    std::vector<double> x, y;
    ASSERT_TRUE(to_doubles(wanted, x) && to_doubles(got[i], y));
    double largest = 0, difference = 0;
    for (std::size_t k = 0; k < x.size(); ++k) {
      largest = std::max(largest, std::fabs(x[k]));
      difference = std::max(difference, std::fabs(x[k] - y[k]));
    }
    EXPECT_LE(difference, relative * largest) << "output " << i << ", largest " << largest;
  }
}

TEST_P(Expected, AsOnnxRuntimeComputed) {
  if (!has_shared_files()) GTEST_SKIP() << "the folder with shared models is not beside the checkout";
  const std::string folder = shared_path(std::string("expected/") + GetParam().folder);
  const Json meta = parse_json(read_text_file(folder + "/meta.json", 1 << 20), folder);
  Graph graph = load_model(shared_path(meta.at("model").get<std::string>()));
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i)
    inputs.push_back(read_npy(folder + fmt::format("/in_{}.npy", i)));
  std::vector<Tensor> got;
  try {
    got = run(graph, inputs);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    GTEST_SKIP() << error.what();
  }
  compare(got, folder, GetParam().relative);
  simplify(graph);
  compare(run(graph, inputs), folder, GetParam().relative);
}

INSTANTIATE_TEST_SUITE_P(
    Models, Expected,
    testing::Values(Recorded{"blazeface_back_astronaut", 1e-5}, Recorded{"blazeface_back_coffee", 1e-5},
                    Recorded{"blazeface_back_sample1", 1e-5}, Recorded{"mlsd_512x512_large", 1e-4},
                    Recorded{"ppocr_det_imageTextN", 1e-4}, Recorded{"ppocr_rec_line", 1e-4},
                    Recorded{"silero_v5_noise", 1e-4}, Recorded{"silero_v5_speech", 1e-4},
                    Recorded{"silero_v6_noise", 1e-4}, Recorded{"silero_v6_speech", 1e-4},
                    Recorded{"packages/efficientnet_lite0_cat", 1e-4},
                    Recorded{"packages/efficientnet_lite0_espresso", 1e-4},
                    Recorded{"packages/magika_six_files", 5e-5}),
    [](const auto& p) {
      std::string name = file_name(p.param.folder);
      return name;
    });

}  // namespace
}  // namespace pare
