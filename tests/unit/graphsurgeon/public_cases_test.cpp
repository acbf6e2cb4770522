// Inputs from public bug reports of other tools, with the right results: whole small models, run by the
// engine. Rows about one pass or one number format are tests where that pass or format is tested.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>

#include "engine/run/session.h"
#include "graphsurgeon/generated_inputs.h"
#include "graphsurgeon/onnx/proto.h"
#include "graphsurgeon/onnx/write.h"
#include "graphsurgeon/simplify.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare {
namespace {

std::vector<Tensor> run(const Graph& graph, const std::vector<Tensor>& inputs) {
  static ThreadPool pool(1);
  SessionOptions options;
  options.pool = &pool;
  return Session(std::make_shared<const Graph>(graph), options).run(inputs);
}

Tensor floats(const Dims& dims, const std::vector<float>& values) {
  return Tensor::from(DType::kF32, dims, values);
}

// Two elements a byte in int32_data too (onnx/onnx#6160), and as raw data 2,048 bytes for 4,096 elements.
TEST(PublicCases, PackedIntegersOfFourBits) {
  onnx::ModelProto model;
  model.ParseFromString(text_model_bytes(
      R"(<ir_version: 10, opset_import: ["": 21]> g () => (float[4096] y) <float s = {0.5}> { y = DequantizeLinear(x, s) })"));
  auto* x = model.mutable_graph()->add_initializer();
  x->set_name("x");
  x->set_data_type(onnx::TensorProto::INT4);
  x->add_dims(4096);
  for (int i = 0; i < 2048; ++i) x->add_int32_data(0xCC);
  EXPECT_LE(x->ByteSizeLong(), 4108u);  // two bytes for each pair, not 20,492
  const Graph graph = read_bytes(model.SerializeAsString());
  const Tensor out = run(graph, {})[0];
  EXPECT_TRUE(std::all_of(out.as<float>(), out.as<float>() + 4096, [](float v) { return v == -2.0f; }));
  onnx::ModelProto written;
  ASSERT_TRUE(written.ParseFromString(onnx_bytes(graph)));
  for (const auto& tensor : written.graph().initializer())
    if (tensor.data_type() == onnx::TensorProto::INT4) {
      EXPECT_EQ(tensor.raw_data(), std::string(2048, '\xCC'));
      EXPECT_EQ(tensor.int32_data_size(), 0);
    }
}

// Check inputs of the self-check (onnx-simplifier gives token ids of zero, which meet one row of the table).
TEST(PublicCases, GeneratedTokenIdsComeFromTheirTable) {
  std::string rows = "0";
  for (int i = 1; i < 50 * 2; ++i) rows += "," + std::to_string(i);
  const Graph graph = text_graph(
      17, "g (int64[B,16] ids) => (float[B,16,2] y) <float[50,2] t = {" + rows + "}> { y = Gather(t, ids) }");
  std::vector<Tensor> inputs;
  std::string why_not;
  ASSERT_TRUE(generate_inputs(graph, {}, 1, inputs, why_not)) << why_not;
  const std::vector<std::int64_t> ids = inputs[0].to_ints();
  EXPECT_GE(*std::min_element(ids.begin(), ids.end()), 0);
  EXPECT_LT(*std::max_element(ids.begin(), ids.end()), 50);
  EXPECT_GE((std::set<std::int64_t>(ids.begin(), ids.end()).size()), 8u);
}

// Shapes that follow from a Concat with an open size (onnx/onnx#7445): no conflict, before or after folding.
TEST(PublicCases, FlattenByHandInAnyBatch) {
  Graph graph = text_graph(
      17, R"(g (float[N,2,3] x) => (float[N,K] y) <int64 i = {0}, int64[1] z = {0}, int64[1] m = {-1}> {
      s = Shape(x) d = Gather(s, i) u = Unsqueeze(d, z) t = Concat <axis = 0> (u, m) y = Reshape(x, t) })");
  simplify(graph);
  EXPECT_EQ(graph.node_count(), 1u);
  for (const std::int64_t batch : {1, 4}) {
    const Tensor x = floats({batch, 2, 3}, std::vector<float>(static_cast<std::size_t>(batch * 6), 1.0f));
    EXPECT_EQ(run(graph, {x})[0].dims(), (Dims{batch, 6}));
  }
}

}  // namespace
}  // namespace pare
