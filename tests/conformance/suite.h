// ONNX's backend suite: folders of tests, each a model with its inputs and outputs, run through the reader
// and a session. A test passes when every output has the suite's type, shape and values (1e-3 relative, 1e-7
// absolute, or what the test's data.json says). Random results are held to their shape and moments instead.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/ir/graph.h"

namespace pare::conformance {

struct SuiteTest {
  std::string folder;  // of the suite: "node", "simple", "pytorch-converted", "pytorch-operator"
  std::string name;    // "test_abs"
  std::string path;
};

// Sorted by name; none when the folder is missing.
std::vector<SuiteTest> suite_tests(const std::string& root, const std::string& folder);

// How the page counts it: for a node test "ai.onnx", "ai.onnx.ml", "training and preview", "random" or
// "image"; for the other folders their own name.
std::string group_of(const SuiteTest& test);

// "" when the test passes; else why not, on one line, without paths.
std::string run_test(const SuiteTest& test, ThreadPool& pool);
// The same for what `change` makes of the model; Errors that it throws pass through.
std::string run_test(const SuiteTest& test, ThreadPool& pool, const std::function<Graph(Graph)>& change);

}  // namespace pare::conformance
