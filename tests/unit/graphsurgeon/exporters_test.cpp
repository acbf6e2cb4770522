// Networks exported by both of PyTorch's exporters (tests/golden/exporters/make.py): run, simplified, with
// the standard operators recognized, against what ONNX Runtime computed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "datasets/npz.h"
#include "engine/base/error.h"
#include "engine/run/session.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/onnx/write.h"
#include "graphsurgeon/passes/edit.h"
#include "graphsurgeon/simplify.h"
#include "tests/unit/graphsurgeon/text_model.h"
#include "tests/unit/test_paths.h"

namespace pare {
namespace {

struct Exported {
  const char* name;
  std::int64_t nodes;                                  // after simplify, at most
  std::vector<std::pair<const char*, int>> operators;  // with recognition, exactly
};

void PrintTo(const Exported& e, std::ostream* out) { *out << e.name; }

class Exporters : public testing::TestWithParam<Exported> {};

std::string base_name(const std::string& name) { return name.substr(0, name.find('-')); }

std::vector<Tensor> arrays(const std::string& name, const std::string& prefix) {
  std::vector<Tensor> all;
  for (const NamedTensor& entry : read_npz(source_path("tests/golden/exporters/" + name + ".npz")))
    if (entry.name.rfind(prefix, 0) == 0) all.push_back(entry.tensor);
  return all;
}

// Sums of at most some hundred products in another order, some 30 layers deep: 1e-4 is far above
// sqrt(30 * 100) * 6e-8 = 3e-6 of the largest value, and far below a wrong result.
void expect_outputs(const Graph& graph, const std::string& name) {
  static ThreadPool pool(2);
  SessionOptions options;
  options.pool = &pool;
  const std::vector<Tensor> got =
      Session(std::make_shared<const Graph>(graph), options).run(arrays(name, "in"));
  const std::vector<Tensor> wanted = arrays(name, "out");
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].dims(), wanted[i].dims());
    std::vector<double> x, y;
    ASSERT_TRUE(to_doubles(wanted[i], x) && to_doubles(got[i], y));
    double largest = 0, difference = 0;
    for (std::size_t k = 0; k < x.size(); ++k) {
      largest = std::max(largest, std::fabs(x[k]));
      difference = std::max(difference, std::fabs(x[k] - y[k]));
    }
    EXPECT_LE(difference, 1e-4 * largest) << "output " << i;
  }
}

Graph load(const Exported& e) {
  return load_model(source_path(std::string("tests/golden/exporters/") + e.name + ".onnx"));
}

TEST_P(Exporters, RunsAsOnnxRuntime) { expect_outputs(load(GetParam()), base_name(GetParam().name)); }

TEST_P(Exporters, SimplifiesToAsFewNodes) {
  Graph graph = load(GetParam());
  const SimplifyReport report = simplify(graph);
  EXPECT_TRUE(report.check.done) << report.check.why_not;
  EXPECT_LE(report.nodes_after, GetParam().nodes);
  expect_outputs(graph, base_name(GetParam().name));
  expect_outputs(read_bytes(onnx_bytes(graph)), base_name(GetParam().name));
}

TEST_P(Exporters, RecognizesTheStandardOperators) {
  Graph graph = load(GetParam());
  SimplifyOptions options;
  options.recognize = true;
  simplify(graph, options);
  std::map<std::string, int> counts;
  for (const NodeId id : graph.nodes()) ++counts[graph.node(id).op];
  for (const auto& [op, count] : GetParam().operators) EXPECT_EQ(counts[op], count) << op;
  expect_outputs(graph, base_name(GetParam().name));
}

const Exported kModels[] = {
    {"resnet-script", 17, {}},
    {"resnet-dynamo", 17, {}},
    {"vit-script", 117, {{"LayerNormalization", 5}, {"Gelu", 2}, {"Attention", 2}}},
    {"vit-dynamo", 85, {{"LayerNormalization", 5}, {"Gelu", 2}, {"Attention", 2}}},
    {"bert-script", 138, {{"LayerNormalization", 5}, {"Gelu", 2}, {"Attention", 2}}},
    {"bert-dynamo", 106, {{"LayerNormalization", 5}, {"Gelu", 2}, {"Attention", 2}}},
    {"lstm-script", 12, {{"LSTM", 2}, {"GRU", 1}}},
    {"lstm-dynamo", 13, {{"LSTM", 2}, {"GRU", 1}}},
    {"detector-script", 62, {{"Swish", 4}, {"Mish", 1}, {"HardSwish", 1}}},
    {"detector-dynamo", 60, {{"Swish", 4}, {"Mish", 1}, {"HardSwish", 1}}},
    {"decoder-script",
     135,
     {{"RMSNormalization", 5}, {"RotaryEmbedding", 4}, {"Attention", 2}, {"Swish", 2}, {"Gelu", 2}}},
    {"decoder-dynamo",
     133,
     {{"RMSNormalization", 5}, {"RotaryEmbedding", 4}, {"Attention", 2}, {"Swish", 2}, {"Gelu", 2}}},
};

INSTANTIATE_TEST_SUITE_P(Models, Exporters, testing::ValuesIn(kModels), [](const auto& p) {
  std::string name = p.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// At most as many nodes as the better of onnxslim 0.1.98 and onnxsim 0.8.1 leave
// (tests/bench/simplify_vs_others.py), Constant nodes left out, all graphs. Outputs are compared in
// golden_test.cpp.
TEST(SimplifyRealModels, AsFewNodesAsOthers) {
  if (!has_shared_files()) GTEST_SKIP() << "the folder with shared models is not beside the checkout";
  const std::pair<const char*, std::int64_t> models[] = {{"fashion/resnet", 48},
                                                         {"fashion/mobilenet", 75},
                                                         {"fashion/vit", 179},
                                                         {"ocr/ppocrv4_det", 297},
                                                         {"ocr/ppocrv4_rec", 377},
                                                         {"blazeface/blazeface_back_256", 147},
                                                         {"mlsd/mlsd_512x512_large", 134},
                                                         {"silero/silero_vad_v5", 152},
                                                         {"silero/silero_vad_v6", 152},
                                                         {"efficientnet/efficientnet_lite0", 94},
                                                         {"magika/model", 93}};
  for (const auto& [name, nodes] : models) {
    Graph graph = load_model(shared_path(std::string("models/") + name + ".onnx"));
    SimplifyOptions options;
    options.self_check = false;
    EXPECT_LE(simplify(graph, options).nodes_after, nodes) << name;
  }
}

}  // namespace
}  // namespace pare
