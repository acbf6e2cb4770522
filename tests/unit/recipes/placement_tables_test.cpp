// Where Q/DQ stand in real models for target tensorrt: the tables in tests/golden/placement, line by line,
// each Q with the rule behind it. tests/golden/placement/make.py writes them again.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "engine/base/atomic_file.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/simplify.h"
#include "quant/placement/placement_text.h"
#include "tests/unit/test_paths.h"

namespace pare {
namespace {

struct Model {
  const char *name, *path;
  bool in_tree;
};

class PlacementTables : public testing::TestWithParam<Model> {};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST_P(PlacementTables, TensorRT) {
  const Model& model = GetParam();
  if (!model.in_tree && !has_shared_files())
    GTEST_SKIP() << "the folder with shared models is not beside the checkout";
  Graph graph = load_model(model.in_tree ? source_path(model.path) : shared_path(model.path));
  simplify(graph);
  std::string text = std::string(model.name) + ", target tensorrt\n";
  for (const char* scheme : {"int8", "fp8"}) {
    quant::Spec spec;
    spec.target = quant::Target::kTensorRT;
    spec.weights = quant::scheme_from_name(scheme).weights;
    spec.activations = quant::scheme_from_name(scheme).activations;
    text += std::string("\n== ") + scheme + "\n" + placement_text(graph, place(graph, spec));
  }
  const std::string path = source_path(std::string("tests/golden/placement/") + model.name + ".txt");
  if (std::getenv("PARE_WRITE_GOLDEN") != nullptr) write_file_atomically(path, std::string_view(text));
  const std::vector<std::string> want = lines_of(read_text_file(path, 1 << 22)), got = lines_of(text);
  for (std::size_t i = 0; i < std::max(want.size(), got.size()); ++i)
    ASSERT_EQ(i < got.size() ? got[i] : "(no line)", i < want.size() ? want[i] : "(no line)")
        << path << ", line " << i + 1;
}

INSTANTIATE_TEST_SUITE_P(Models, PlacementTables,
                         testing::Values(Model{"fashion-resnet", "examples/fashion/resnet.onnx", true},
                                         Model{"fashion-mobilenet", "examples/fashion/mobilenet.onnx", true},
                                         Model{"fashion-vit", "examples/fashion/vit.onnx", true},
                                         Model{"ocr-recognizer", "models/ocr/ppocrv4_rec.onnx", false},
                                         Model{"efficientnet-lite0",
                                               "models/efficientnet/efficientnet_lite0.onnx", false}),
                         [](const testing::TestParamInfo<Model>& one) {
                           std::string name = one.param.name;
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace pare
