// The node tests of ONNX's backend suite (in every onnx wheel): one model, its inputs and outputs a folder.
// What the engine supports must give the suite's results within the suite's tolerance (1e-3 relative, 1e-7
// absolute); what it does not must say so by Error kUnsupported.
//
//   PARE_ONNX_NODES=.../onnx/backend/test/data/node onnx_nodes_test
//
// PARE_ONNX_NODES_ONLY=NAME runs one and prints its tensors; PARE_ONNX_NODES_LIST=1 lists what is
// unsupported.
#include <dirent.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/pack.h"
#include "engine/run/session.h"
#include "graphsurgeon/onnx/proto.h"
#include "graphsurgeon/onnx/read.h"
#include "graphsurgeon/onnx/tensor_proto.h"

namespace pare {
namespace {

std::string variable(const char* key) {
  const char* const value = std::getenv(key);
  return value == nullptr ? "" : value;
}

std::vector<std::string> folders(const std::string& path) {
  std::vector<std::string> names;
  DIR* const dir = opendir(path.c_str());
  if (dir == nullptr) return names;
  while (const dirent* entry = readdir(dir))
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

bool exists(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "rb");
  if (file != nullptr) std::fclose(file);
  return file != nullptr;
}

// input_0.pb, input_1.pb, ...; kUnsupported for sequences and optionals, which do not parse as tensors.
std::vector<Tensor> tensors(const std::string& folder, const std::string& kind) {
  std::vector<Tensor> all;
  for (int i = 0; exists(folder + "/" + kind + "_" + std::to_string(i) + ".pb"); ++i) {
    const MappedFile file(folder + "/" + kind + "_" + std::to_string(i) + ".pb");
    onnx::TensorProto proto;
    const auto bytes = file.bytes();
    if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ||
        proto.data_type() == onnx::TensorProto::UNDEFINED)
      fail(ErrorCode::kUnsupported, "an {} that is no tensor", kind);
    TensorSource source;
    all.push_back(read_tensor(proto, source).clone());
  }
  return all;
}

double element(const Tensor& t, std::int64_t i) {
  Tensor wide = Tensor::allocate(DType::kF64, {1});
  const int size = bits(t.dtype());
  if (size < 8) {  // its code, alone in a byte
    std::uint8_t code = packed_code(size, t.data(), i);
    convert({t.dtype(), {1}, &code}, {DType::kF64, {1}, wide.mut<double>()});
    return *wide.as<double>();
  }
  convert({t.dtype(), {1}, const_cast<std::byte*>(t.as<std::byte>()) + i * size / 8},
          {DType::kF64, {1}, wide.mut<double>()});
  return *wide.as<double>();
}

std::string difference(const Tensor& got, const Tensor& want) {
  if (got.dtype() != want.dtype())
    return fmt::format("is {}, should be {}", name(got.dtype()), name(want.dtype()));
  if (got.dims() != want.dims())
    return "is " + to_string(got.dims()) + ", should be " + to_string(want.dims());
  if (got.dtype() == DType::kString) {
    for (std::int64_t i = 0; i < got.size(); ++i)
      if (got.as<std::string>()[i] != want.as<std::string>()[i]) return fmt::format("string {} differs", i);
    return "";
  }
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const double a = element(got, i), b = element(want, i);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b || std::fabs(a - b) <= 1e-3 * std::fabs(b) + 1e-7) continue;
    return fmt::format("element {} is {}, should be {}", i, a, b);
  }
  return "";
}

// Random results, which the suite itself does not compare.
bool is_random(const std::string& test) {
  return test.find("bernoulli") != std::string::npos || test.find("training_dropout") != std::string::npos;
}

// E2M1 has no NaN: the suite makes -0 of it, CUDA and pare +6 (e2m1.h).
bool has_nan_without_code(const std::string& test) {
  return test.find("cast") != std::string::npos && test.find("_to_FLOAT4E2M1") != std::string::npos;
}

struct Outcome {
  int passed = 0, declined = 0, unread = 0;
};

void run_one(const std::string& root, const std::string& test, ThreadPool& pool, Outcome& outcome) {
  const bool chatty = !variable("PARE_ONNX_NODES_LIST").empty() || !variable("PARE_ONNX_NODES_ONLY").empty();
  std::shared_ptr<const Graph> graph;
  try {
    graph = std::make_shared<const Graph>(read_onnx(root + "/" + test + "/model.onnx"));
  } catch (const Error& error) {  // other domains, sequences, bodies that onnx's inliner cannot expand
    ++outcome.unread;
    if (chatty) std::printf("%s: %s\n", test.c_str(), error.what());
    return;
  }
  try {
    for (int set = 0; exists(root + "/" + test + "/test_data_set_" + std::to_string(set) + "/output_0.pb");
         ++set) {
      const std::string folder = root + "/" + test + "/test_data_set_" + std::to_string(set);
      SessionOptions options;
      options.pool = &pool;
      Session session(graph, options);
      const std::vector<Tensor> got = session.run(tensors(folder, "input")), want = tensors(folder, "output");
      if (is_random(test)) continue;
      ASSERT_EQ(got.size(), want.size()) << test;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const std::string why = difference(got[i], want[i]);
        if (!why.empty()) ADD_FAILURE() << test << ": output " << i << " " << why;
      }
    }
    ++outcome.passed;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported)
        << test << ": " << error.what() << " (" << error.where() << ")";
    ++outcome.declined;
    if (chatty) std::printf("%s: %s\n", test.c_str(), error.what());
  } catch (const std::exception& error) {
    ADD_FAILURE() << test << ": " << error.what();
  }
}

TEST(OnnxNodes, SupportedOperatorsGiveTheSuitesResults) {
  const std::string root = variable("PARE_ONNX_NODES"), only = variable("PARE_ONNX_NODES_ONLY");
  const std::vector<std::string> tests = folders(root);
  ASSERT_GT(tests.size(), 1000U) << "PARE_ONNX_NODES names no folder of node tests";
  ThreadPool pool(2);
  Outcome outcome;
  for (const std::string& test : tests) {
    if (!only.empty() && test != only) continue;
    if (has_nan_without_code(test)) continue;
    run_one(root, test, pool, outcome);
  }
  std::printf("%d tests agree or are reported above, %d are unsupported, %d cannot be read\n", outcome.passed,
              outcome.declined, outcome.unread);
  if (!only.empty()) return;
  EXPECT_GE(outcome.passed, 1526) << "fewer tests are supported than there were";
}

}  // namespace
}  // namespace pare
