// Every real model is read, written and read again: the second graph equals the first.
#include <gtest/gtest.h>

#include "engine/base/paths.h"
#include "graphsurgeon/graph_hash.h"
#include "graphsurgeon/inspect.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/onnx/read.h"
#include "graphsurgeon/onnx/write.h"
#include "tests/unit/graphsurgeon/models.h"

namespace pare {
namespace {

Graph read_back(const std::string& bytes) {
  return read_onnx_bytes(std::as_bytes(std::span(bytes)), nullptr, "", "written");
}

class RoundTrip : public testing::TestWithParam<std::string> {};

TEST_P(RoundTrip, WrittenModelIsTheSameGraph) {
  const Graph graph = load_model(GetParam());
  WriteReport report;
  const std::string bytes = onnx_bytes(graph, {}, &report);
  EXPECT_EQ(report.opset, graph.opset);
  EXPECT_TRUE(report.why.empty()) << report.why[0];
  EXPECT_EQ(bytes, onnx_bytes(graph)) << "bytes depend on the graph alone";

  const Graph again = read_back(bytes);
  // Opsets below 11 have no negative axes: those that a file has all the same are written as positive ones.
  if (graph.opset >= 11) {
    EXPECT_EQ(hex(graph_hash(again)), hex(graph_hash(graph)));
  }
  EXPECT_EQ(again.node_count(), graph.node_count());
  EXPECT_EQ(onnx_bytes(again), bytes);
}

TEST_P(RoundTrip, NewestOpsetHoldsItToo) {
  const Graph graph = load_model(GetParam());
  WriteOptions options;
  options.opset = 27;
  const Graph again = read_back(onnx_bytes(graph, options));
  EXPECT_EQ(again.opset, 27);
  EXPECT_EQ(hex(graph_hash(again)), hex(graph_hash(graph)));
}

INSTANTIATE_TEST_SUITE_P(Models, RoundTrip, testing::ValuesIn(real_models()), [](const auto& p) {
  std::string name = file_stem(p.param);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

}  // namespace
}  // namespace pare
