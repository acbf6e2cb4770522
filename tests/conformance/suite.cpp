#include "tests/conformance/suite.h"

#include <dirent.h>

#include <algorithm>
#include <cstdio>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/mapped_file.h"
#include "engine/run/session.h"
#include "graphsurgeon/onnx/proto.h"
#include "graphsurgeon/onnx/read.h"
#include "graphsurgeon/onnx/sequence_proto.h"
#include "graphsurgeon/onnx/tensor_proto.h"
#include "tests/conformance/compare.h"

namespace pare::conformance {
namespace {

bool exists(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "rb");
  if (file != nullptr) std::fclose(file);
  return file != nullptr;
}

template <typename Proto>
void parse(const std::string& path, Proto& proto) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    fail(ErrorCode::kUnsupported, "a file of the test that does not parse");
}

Tensor tensor_of(const onnx::TensorProto& proto) {
  if (proto.data_type() == onnx::TensorProto::UNDEFINED)
    fail(ErrorCode::kUnsupported, "a file that holds no tensor");
  TensorSource source;
  return read_tensor(proto, source).clone();
}

std::vector<Tensor> tensors_of(const onnx::SequenceProto& proto) {
  if (proto.elem_type() != onnx::SequenceProto::TENSOR && proto.elem_type() != 0)
    fail(ErrorCode::kUnsupported, "a sequence that does not hold tensors");
  std::vector<Tensor> all;
  for (const onnx::TensorProto& tensor : proto.tensor_values()) all.push_back(tensor_of(tensor));
  return all;
}

// input_0.pb, input_1.pb, ...: what each holds is what the model says of the value.
std::vector<RunValue> values(const Graph& graph, const std::vector<ValueId>& ids, const std::string& folder,
                             const std::string& kind) {
  std::vector<RunValue> all;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string path = folder + "/" + kind + "_" + std::to_string(i) + ".pb";
    RunValue value;
    switch (graph.value(ids[i]).kind) {
      case ValueKind::kTensor: {
        onnx::TensorProto proto;
        parse(path, proto);
        value.tensor = tensor_of(proto);
        break;
      }
      case ValueKind::kSequence: {
        onnx::SequenceProto proto;
        parse(path, proto);
        value.sequence = tensors_of(proto);
        break;
      }
      default: {
        onnx::OptionalProto proto;
        parse(path, proto);
        value.present = proto.has_tensor_value() || proto.has_sequence_value();
        if (proto.has_tensor_value()) value.tensor = tensor_of(proto.tensor_value());
        if (proto.has_sequence_value()) value.sequence = tensors_of(proto.sequence_value());
      }
    }
    all.push_back(std::move(value));
  }
  return all;
}

std::string value_difference(const std::string& test, const RunValue& got, const RunValue& want,
                             const Tolerance& tolerance) {
  if (got.present != want.present) return want.present ? "holds nothing" : "holds something";
  if (got.tensor.empty() != want.tensor.empty()) return "is no tensor, or should be none";
  if (got.sequence.size() != want.sequence.size())
    return fmt::format("has {} elements, should have {}", got.sequence.size(), want.sequence.size());
  const auto compare = [&](const Tensor& a, const Tensor& b) {
    return is_random(test) ? shape_difference(a, b) : difference(a, b, tolerance);
  };
  if (!got.tensor.empty()) return compare(got.tensor, want.tensor);
  for (std::size_t i = 0; i < got.sequence.size(); ++i)
    if (std::string why = compare(got.sequence[i], want.sequence[i]); !why.empty())
      return fmt::format("element {} {}", i, why);
  return "";
}

std::vector<Tensor> tensors_among(const std::vector<RunValue>& values) {
  std::vector<Tensor> all;
  for (const RunValue& value : values) all.push_back(value.tensor);
  return all;
}

Tolerance tolerance_of(const SuiteTest& test) {
  Tolerance tolerance;
  const std::string path = test.path + "/data.json";
  if (!exists(path)) return tolerance;
  const Json data = read_json_file(path);
  tolerance.relative = data.value("rtol", tolerance.relative);
  tolerance.absolute = data.value("atol", tolerance.absolute);
  return tolerance;
}

std::string run_sets(const SuiteTest& test, ThreadPool& pool, Graph model) {
  const auto graph = std::make_shared<const Graph>(std::move(model));
  const Tolerance tolerance = tolerance_of(test);
  int sets = 0;
  for (;; ++sets) {
    const std::string folder = test.path + "/test_data_set_" + std::to_string(sets);
    if (!exists(folder + "/output_0.pb")) break;
    SessionOptions options;
    options.pool = &pool;
    Session session(graph, options);
    const std::vector<RunValue> in = values(*graph, graph->inputs, folder, "input"),
                                want = values(*graph, graph->outputs, folder, "output");
    const std::vector<RunValue> got = session.run_values(in);
    for (std::size_t i = 0; i < got.size(); ++i)
      if (std::string why = value_difference(test.name, got[i], want[i], tolerance); !why.empty())
        return fmt::format("output {} {}", i, why);
    if (is_random(test.name))
      if (std::string why = random_difference(test.name, tensors_among(in), tensors_among(got)); !why.empty())
        return why;
  }
  return sets == 0 ? "the test has no data" : "";
}

std::string one_line(std::string text, const std::string& path) {
  for (const std::string& cut : {"while reading ONNX model '" + path + "/model.onnx': ", path + "/"})
    for (std::size_t at; (at = text.find(cut)) != std::string::npos;) text.erase(at, cut.size());
  return text.substr(0, text.find('\n'));  // each kernel's reason follows; the first line says what was asked
}

bool is_optimizer_or_preview(const std::string& domain) {
  return domain.find("training") != std::string::npos || domain.find("preview") != std::string::npos;
}

}  // namespace

std::vector<SuiteTest> suite_tests(const std::string& root, const std::string& folder) {
  std::vector<SuiteTest> tests;
  DIR* const dir = opendir((root + "/" + folder).c_str());
  if (dir == nullptr) return tests;
  while (const dirent* entry = readdir(dir)) {
    const std::string path = root + "/" + folder + "/" + entry->d_name;
    if (entry->d_name[0] != '.' && exists(path + "/model.onnx"))
      tests.push_back({folder, entry->d_name, path});
  }
  closedir(dir);
  std::sort(tests.begin(), tests.end(),
            [](const SuiteTest& a, const SuiteTest& b) { return a.name < b.name; });
  return tests;
}

std::string group_of(const SuiteTest& test) {
  if (test.folder != "node") return test.folder;
  onnx::ModelProto model;
  parse(test.path + "/model.onnx", model);
  bool ml = false;
  for (const onnx::NodeProto& node : model.graph().node()) {
    if (is_optimizer_or_preview(node.domain())) return "training and preview";
    ml = ml || node.domain() == "ai.onnx.ml";
  }
  if (is_random(test.name)) return "random";
  if (test.name.find("image_decoder") != std::string::npos) return "image";
  return ml ? "ai.onnx.ml" : "ai.onnx";
}

std::string run_test(const SuiteTest& test, ThreadPool& pool) {
  try {
    return one_line(run_sets(test, pool, read_onnx(test.path + "/model.onnx")), test.path);
  } catch (const std::exception& error) {
    return one_line(error.what(), test.path);
  }
}

std::string run_test(const SuiteTest& test, ThreadPool& pool, const std::function<Graph(Graph)>& change) {
  Graph changed = change(read_onnx(test.path + "/model.onnx"));
  try {
    return one_line(run_sets(test, pool, std::move(changed)), test.path);
  } catch (const std::exception& error) {
    return one_line(error.what(), test.path);
  }
}

}  // namespace pare::conformance
