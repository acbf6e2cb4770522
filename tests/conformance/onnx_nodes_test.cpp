// The backend suite of the onnx project (in its source archive, and in every onnx wheel): 1,765 node tests
// and 140 simple and converted ones. docs/conformance.md lists what does not pass, and why; the test fails
// when a test is not passed that is not listed there, and when a listed one passes.
//
//   PARE_ONNX_SUITE=.../onnx/backend/test/data onnx_nodes_test
//
// PARE_ONNX_ONLY=NAME runs the tests whose names hold NAME and prints each verdict; PARE_CONFORMANCE_WRITE=1
// writes the page. scripts/conformance does both from the command line.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/conformance/page.h"
#include "tests/conformance/suite.h"

namespace pare::conformance {
namespace {

std::string variable(const char* key) {
  const char* const value = std::getenv(key);
  return value == nullptr ? "" : value;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(OnnxSuite, WhatDoesNotPassIsExactlyWhatThePageLists) {
  const std::string root = variable("PARE_ONNX_SUITE"), only = variable("PARE_ONNX_ONLY");
  const std::string page_path = std::string(PARE_SOURCE_DIR) + "/docs/conformance.md";
  ThreadPool pool(2);
  std::vector<Verdict> verdicts;
  for (const char* folder : {"node", "simple", "pytorch-converted", "pytorch-operator"})
    for (const SuiteTest& test : suite_tests(root, folder)) {
      if (!only.empty() && test.name.find(only) == std::string::npos) continue;
      verdicts.push_back({group_of(test), test.name, run_test(test, pool)});
      if (!only.empty())
        std::printf("%s: %s\n", test.name.c_str(),
                    verdicts.back().why_not.empty() ? "passed" : verdicts.back().why_not.c_str());
    }
  if (!only.empty()) return;
  ASSERT_GE(verdicts.size(), 1905U) << "PARE_ONNX_SUITE names no folder of the whole suite";
  std::printf("%s", totals_text(verdicts).c_str());
  const std::string page = text_of(page_path);
  if (!variable("PARE_CONFORMANCE_WRITE").empty()) {
    std::ofstream(page_path, std::ios::binary) << render_page(page, verdicts);
    return;
  }
  EXPECT_EQ(page_difference(page, verdicts), "") << "scripts/conformance --write brings the page up to date";
  EXPECT_EQ(render_page(page, verdicts).substr(0, page.find("## Not passed")),
            page.substr(0, page.find("## Not passed")))
      << "the totals changed: scripts/conformance --write";
}

// One model an operator of com.microsoft; what ONNX Runtime made of it (tests/golden/make_microsoft.py).
TEST(MicrosoftOperators, GiveWhatOnnxRuntimeGives) {
  const std::string only = variable("PARE_ONNX_ONLY");
  ThreadPool pool(2);
  const std::vector<SuiteTest> tests =
      suite_tests(std::string(PARE_SOURCE_DIR) + "/tests/golden", "microsoft");
  EXPECT_GE(tests.size(), 70U);
  for (const SuiteTest& test : tests)
    if (only.empty() || test.name.find(only) != std::string::npos) {
      EXPECT_EQ(run_test(test, pool), "") << test.name;
    }
}

TEST(ConformancePage, KeepsWrittenReasonsAndReplacesThoseOfRuns) {
  const std::string old =
      "Words.\n\n## Totals\n\n## Not passed\n\n| test_a | written by hand |\n| test_b | \"said by a run\" |\n"
      "| test_c | passes now |\n";
  const std::vector<Verdict> verdicts = {{"ai.onnx", "test_a", "x"},
                                         {"ai.onnx", "test_b", "y | z"},
                                         {"ai.onnx", "test_c", ""},
                                         {"random", "test_d", "new"}};
  const std::string page = render_page(old, verdicts);
  EXPECT_EQ(page.rfind("Words.\n\n## Totals\n", 0), 0U);
  EXPECT_NE(page.find("| ai.onnx | 3 | 1 | 33.3 % |\n"), std::string::npos) << page;
  const auto reasons = reasons_of(page);
  ASSERT_EQ(reasons.size(), 3U);
  EXPECT_EQ(reasons.at("test_a"), "written by hand");
  EXPECT_EQ(reasons.at("test_b"), "\"y / z\"");
  EXPECT_EQ(page_difference(page, verdicts), "");
  EXPECT_EQ(page_difference(old, verdicts), "  test_c passes now\n  test_d fails: new\n");
}

}  // namespace
}  // namespace pare::conformance
