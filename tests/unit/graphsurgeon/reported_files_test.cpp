// Files and small graphs from bug reports of other tools, with what is right. Operators are in
// reported_cases_test.cpp.
#include <gtest/gtest.h>

#include <memory>

#include "engine/base/error.h"
#include "engine/run/session.h"
#include "graphsurgeon/onnx/proto.h"
#include "graphsurgeon/onnx/write.h"
#include "graphsurgeon/simplify.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare {
namespace {

Tensor run(const Graph& graph, std::vector<Tensor> in) {
  static ThreadPool pool(1);
  SessionOptions options;
  options.pool = &pool;
  Session session(std::make_shared<const Graph>(graph), options);
  return session.run(std::move(in)).at(0);
}

Tensor floats(Dims dims, const std::vector<float>& values) {
  return Tensor::from(DType::kF32, std::move(dims), values);
}

template <typename T>
std::vector<T> values(const Tensor& t) {
  return {t.as<T>(), t.as<T>() + t.size()};
}

TEST(ReportedFiles, SqueezeOfTheLastAxisTwice) {  // G2, onnx/optimizer#35, #253
  Graph graph = text_graph(13,
                           "g (float[1,5000,1,1] x) => (float[P,Q] y) <int64[1] a = {-1}> { s = Squeeze(x, "
                           "a) y = Squeeze(s, a) }");
  simplify(graph);
  EXPECT_EQ(to_string(graph.value(graph.outputs[0]).shape), "[1,5000]");
}

TEST(ReportedFiles, ConcatAndReshapeOfADynamicBatch) {  // G8, onnx/onnx#7445
  Graph graph = text_graph(
      17, R"(g (float[batch,2,3] x) => (float[batch,6] y) <int64[1] zero = {0}, int64[1] rest = {-1}> {
      s = Shape(x) b = Gather(s, zero) t = Concat <axis = 0> (b, rest) y = Reshape(x, t) })");
  EXPECT_EQ(to_string(graph.value(graph.outputs[0]).shape), "[batch,6]");
  simplify(graph);
  EXPECT_EQ(run(graph, {floats({2, 2, 3}, std::vector<float>(12, 1.0F))}).dims(), (Dims{2, 6}));
}

TEST(ReportedFiles, RandomNodesAreNotMerged) {  // G13
  Graph graph = text_graph(
      17,
      R"(g () => (float[4] y) { a = RandomUniform <shape = [4]> () b = RandomUniform <shape = [4]> () y = Sub(a, b) })");
  SimplifyOptions options;
  options.self_check = false;
  simplify(graph, options);
  EXPECT_EQ(graph.node_count(), 3u);
}

TEST(ReportedFiles, FourBitsTakeFourBits) {  // F1, onnx/onnx#6160, PR 6161
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(text_model_bytes(R"(<ir_version: 10, opset_import: ["": 21]>
      g (float[1] s) => (float[4096] y) { y = DequantizeLinear(x, s) })")));
  auto& x = *model.mutable_graph()->add_initializer();
  x.set_name("x");
  x.set_data_type(onnx::TensorProto::INT4);
  x.add_dims(4096);
  for (int i = 0; i < 2048; ++i) x.add_int32_data(0xCC);  // -4 twice
  EXPECT_LE(x.ByteSizeLong(), 4108u);
  const Graph graph = read_bytes(model.SerializeAsString());
  const std::vector<float> y = values<float>(run(graph, {floats({1}, {0.5F})}));
  EXPECT_EQ(y, std::vector<float>(4096, -2.0F));
  ASSERT_TRUE(model.ParseFromString(onnx_bytes(graph)));
  EXPECT_EQ(model.graph().initializer(0).raw_data(), std::string(2048, '\xCC'));
}

}  // namespace
}  // namespace pare
