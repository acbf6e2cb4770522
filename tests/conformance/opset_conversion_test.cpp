// Every test of the backend suite that passes, converted to other opsets wherever convert_opset says that it
// can be: written, read back and run, it still passes.
//
//   PARE_ONNX_ONLY=NAME PARE_ONNX_OPSETS=1 onnx_nodes_test    prints each refusal
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <span>

#include "engine/base/error.h"
#include "graphsurgeon/onnx/convert_opset.h"
#include "graphsurgeon/onnx/read.h"
#include "graphsurgeon/onnx/write.h"
#include "tests/conformance/suite.h"

namespace pare::conformance {
namespace {

struct Count {
  int converted = 0, refused = 0;
};

TEST(OnnxSuite, ConvertedModelsPassToo) {
  const char* const root = std::getenv("PARE_ONNX_SUITE");
  const char* const only = std::getenv("PARE_ONNX_ONLY");
  const bool chatty = std::getenv("PARE_ONNX_OPSETS") != nullptr;
  if (root == nullptr || (only != nullptr && !chatty)) GTEST_SKIP();
  ThreadPool pool(2);
  std::map<int, Count> counts;
  for (const char* folder : {"node", "simple", "pytorch-converted", "pytorch-operator"})
    for (const SuiteTest& test : suite_tests(root, folder)) {
      if (only != nullptr && test.name.find(only) == std::string::npos) continue;
      if (!run_test(test, pool).empty()) continue;
      for (const int opset : {9, 11, 13, 17, 21, 25}) {
        const auto change = [&](Graph graph) {
          convert_opset(graph, opset);
          WriteReport report;
          const std::string bytes = onnx_bytes(graph, {}, &report);
          EXPECT_EQ(report.opset, opset) << test.name << ": " << (report.why.empty() ? "" : report.why[0]);
          return read_onnx_bytes(std::as_bytes(std::span(bytes)), nullptr, "", "converted");
        };
        try {
          const std::string why = run_test(test, pool, change);
          EXPECT_EQ(why, "") << test.name << " at opset " << opset;
          ++counts[opset].converted;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kUnsupported)
              << test.name << " at opset " << opset << ": " << error.what() << " " << error.where();
          EXPECT_FALSE(error.where().empty() || error.hint().empty()) << test.name << ": " << error.what();
          if (chatty) std::printf("%s %d: %s\n", test.name.c_str(), opset, error.what());
          ++counts[opset].refused;
        }
      }
    }
  for (const auto& [opset, count] : counts)
    std::printf("opset %d: %d converted and passed, %d refused\n", opset, count.converted, count.refused);
}

}  // namespace
}  // namespace pare::conformance
