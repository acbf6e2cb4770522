// Models that are quantized in part already: what is there stays, only what is missing is placed. Weights as
// codes behind a DequantizeLinear (a scale a channel, zero points given or left out), activations behind
// Q/DQ, a bias as int32 codes.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/ir/schema.h"
#include "quant/placement/placement.h"
#include "tests/unit/quant/build_graph.h"

namespace pare::quant {
namespace {

NodeId node_making(const Graph& graph, const char* value) { return graph.producer(graph.find_value(value)); }

ValueId float_value(Graph& graph, const std::string& name) {
  Value value;
  value.name = name;
  value.dtype = DType::kF32;
  return graph.add_value(value);
}

// DequantizeLinear(codes, scale[, zero]) in front of `reader`, in its input `slot`.
void put_codes(Graph& graph, NodeId reader, int slot, const std::string& name, DType type, bool per_channel,
               bool zero) {
  const Dims dims = graph.value(graph.node(reader).in[static_cast<std::size_t>(slot)]).constant.dims();
  Tensor codes = Tensor::allocate(type, dims);
  for (std::int64_t i = 0; i < codes.size(); ++i) {
    if (type == DType::kI8)
      codes.mut<std::int8_t>()[i] = static_cast<std::int8_t>(i % 7 - 3);
    else
      codes.mut<std::int32_t>()[i] = static_cast<std::int32_t>(i - 3);
  }
  const std::int64_t scales = per_channel ? dims[0] : 1;
  const Dims shape = per_channel ? Dims{scales} : Dims{};
  Node dq;
  dq.name = name + "_dq";
  dq.op = "DequantizeLinear";
  dq.in = {graph.add_constant(name + "_codes", std::move(codes)),
           graph.add_constant(name + "_scale",
                              Tensor::from(DType::kF32, shape,
                                           std::vector<float>(static_cast<std::size_t>(scales), 0.125F)))};
  if (zero)
    dq.in.push_back(graph.add_constant(
        name + "_zero",
        Tensor::from(type, shape, std::vector<std::int8_t>(static_cast<std::size_t>(scales), 0))));
  if (per_channel) dq.attrs["axis"] = std::int64_t{0};
  dq.out = {float_value(graph, name + "_float")};
  const ValueId out = dq.out[0];
  graph.insert_before(reader, std::move(dq));
  graph.set_input(reader, slot, out);
}

// QuantizeLinear -> DequantizeLinear on an input of `reader`.
void put_pair(Graph& graph, NodeId reader, int slot, float scale) {
  const ValueId source = graph.node(reader).in[static_cast<std::size_t>(slot)];
  const std::string name = graph.value(source).name;
  const ValueId s = graph.add_constant(name + "_scale", Tensor::scalar(scale));
  const ValueId z =
      graph.add_constant(name + "_zero", Tensor::from(DType::kI8, {}, std::vector<std::int8_t>{0}));
  Value codes;
  codes.name = name + "_codes";
  codes.dtype = DType::kI8;
  Node q, dq;
  q.op = "QuantizeLinear";
  q.in = {source, s, z};
  q.out = {graph.add_value(codes)};
  dq.op = "DequantizeLinear";
  dq.in = {q.out[0], s, z};
  dq.out = {float_value(graph, name + "_float")};
  const ValueId out = dq.out[0];
  graph.insert_before(reader, std::move(q));
  graph.insert_before(reader, std::move(dq));
  graph.set_input(reader, slot, out);
}

std::vector<std::string> activations(const Graph& graph, const Placement& placement) {
  std::vector<std::string> list;
  for (const ActivationSite& site : placement.activations) list.push_back(graph.value(site.value).name);
  std::sort(list.begin(), list.end());
  return list;
}
std::vector<std::string> weights(const Graph& graph, const Placement& placement) {
  std::vector<std::string> list;
  for (const WeightSite& site : placement.weights) list.push_back(graph.value(site.value).name);
  std::sort(list.begin(), list.end());
  return list;
}
using Names = std::vector<std::string>;

class PartlyQuantized : public testing::TestWithParam<std::tuple<Target, bool, bool>> {};

TEST_P(PartlyQuantized, OnlyWhatIsMissingIsPlaced) {
  const auto [target, per_channel, zero] = GetParam();
  Graph graph = test::residual_block();
  const NodeId conv = node_making(graph, "conv1");
  put_codes(graph, conv, 1, "w1", DType::kI8, per_channel, zero);
  put_codes(graph, conv, 2, "b1", DType::kI32, per_channel, false);
  put_pair(graph, conv, 0, 0.0625F);
  infer_shapes(graph);
  verify(graph);
  Spec spec;
  spec.target = target;
  const Placement placement = place(graph, spec);
  const Names placed = weights(graph, placement), values = activations(graph, placement);
  EXPECT_EQ(placed, (Names{"w2", "wf", "ws"})) << "w1 has its codes";
  EXPECT_EQ(std::count(values.begin(), values.end(), "x_float"), 0) << "its Q/DQ stand there";
  EXPECT_EQ(std::count(values.begin(), values.end(), "relu1"), 1) << "nobody has quantized it yet";
  EXPECT_EQ(std::count(values.begin(), values.end(), "x"), 1) << "the shortcut reads it in float";
  for (const ActivationSite& site : placement.activations)
    if (graph.value(site.value).name == "x") {
      EXPECT_EQ(site.uses.size(), 1u) << "the shortcut alone, not the QuantizeLinear of the model";
    }
  for (const BiasSite& site : placement.biases) EXPECT_NE(site.node, conv) << "its bias has codes";
  const auto kept = std::find_if(placement.skipped.begin(), placement.skipped.end(),
                                 [](const Skipped& s) { return s.why == "its Q/DQ in the model are kept"; });
  EXPECT_NE(kept, placement.skipped.end());
}

INSTANTIATE_TEST_SUITE_P(Forms, PartlyQuantized,
                         testing::Combine(testing::Values(Target::kPare, Target::kTensorRT,
                                                          Target::kOnnxRuntime),
                                          testing::Bool(), testing::Bool()));

TEST(QuantizedAlready, AWholeModelNeedsNothing) {
  Graph graph = test::residual_block();
  for (const char* made : {"conv1", "conv2", "shortcut"}) {
    const NodeId conv = node_making(graph, made);
    put_codes(graph, conv, 1, std::string(made) + "_w", DType::kI8, true, true);
    put_pair(graph, conv, 0, 0.0625F);
  }
  const NodeId gemm = node_making(graph, "y");
  put_codes(graph, gemm, 1, "gemm_w", DType::kI8, false, false);
  put_pair(graph, gemm, 0, 0.0625F);
  infer_shapes(graph);
  const Placement placement = place(graph, Spec{});
  EXPECT_TRUE(placement.activations.empty());
  EXPECT_TRUE(placement.weights.empty());
}

}  // namespace
}  // namespace pare::quant
