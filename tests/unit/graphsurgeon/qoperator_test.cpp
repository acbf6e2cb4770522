// Both forms of a quantized operator, and what has no other form.
#include "graphsurgeon/forms/qoperator.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "graphsurgeon/graph_hash.h"
#include "graphsurgeon/onnx/write.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare {
namespace {

Graph model(const std::string& graph) {
  return text_model(fmt::format("<ir_version: 8, opset_import: [\"\": 17, \"com.microsoft\": 1]> {}", graph));
}

std::vector<std::string> ops(const Graph& graph) {
  std::vector<std::string> list;
  for (const NodeId id : graph.nodes()) list.push_back(graph.node(id).op);
  return list;
}
using Ops = std::vector<std::string>;

const Node& node_of(const Graph& graph, const char* op) {
  for (const NodeId id : graph.nodes())
    if (graph.node(id).op == op) return graph.node(id);
  fail(ErrorCode::kInternal, "no {}", op);
}

const char* const kConv = R"(g (uint8[1,2,4,4] x) => (uint8[1,3,4,4] y)
  <float xs = {0.5}, uint8 xz = {3}, int8[3,2,1,1] w = {1,-2,3,-4,5,-6}, float[3] ws = {0.5,0.25,2}, int8[3] wz = {0,0,0},
   float ys = {0.125}, uint8 yz = {7}, int32[3] b = {10,-20,30}> {
    [conv] y = QLinearConv(x, xs, xz, w, ws, wz, ys, yz, b) })";

TEST(ToQdq, AConvolutionWithItsBias) {
  Graph graph = model(kConv);
  const QuantizedFormReport report = to_qdq(graph);
  EXPECT_EQ(report.converted.at("QLinearConv"), 1);
  EXPECT_TRUE(report.left.empty());
  EXPECT_EQ(ops(graph),
            (Ops{"DequantizeLinear", "DequantizeLinear", "DequantizeLinear", "Conv", "QuantizeLinear"}));
  const Node& conv = node_of(graph, "Conv");
  EXPECT_EQ(conv.name, "conv");
  const Node& weight = graph.node(graph.producer(conv.in[1]));
  EXPECT_EQ(weight.attr("axis", std::int64_t{1}), 0);
  const Node& bias = graph.node(graph.producer(conv.in[2]));
  const Tensor& scale = graph.value(bias.in[1]).constant;
  EXPECT_EQ((std::vector<float>(scale.as<float>(), scale.as<float>() + 3)),
            (std::vector<float>{0.25, 0.125, 1}));
  EXPECT_EQ(bias.attr("axis", std::int64_t{1}), 0);
  EXPECT_EQ(graph.value(graph.outputs[0]).name, "y");
}

struct Form {
  const char *op, *text;
};

const Form kForms[] = {
    {"QLinearConv", kConv},
    {"QLinearMatMul",
     R"(g (int8[2,3] a) => (int8[2,4] y) <float s = {0.5}, int8 z = {3}, int8[3,4] w = {1,2,3,4,5,6,7,8,9,10,11,12}, float[4] ws = {1,2,3,4}, int8[4] wz = {0,0,0,0}> {
        y = QLinearMatMul(a, s, z, w, ws, wz, s, z) })"},
    {"QLinearAdd",
     R"(g (uint8[2,3] a, uint8[2,3] b) => (uint8[2,3] y) <float s = {0.5}, uint8 z = {3}, float t = {0.25}> { y = com.microsoft.QLinearAdd(a, s, z, b, t, z, s, z) })"},
    {"QLinearMul",
     R"(g (uint8[2,3] a, uint8[2,3] b) => (uint8[2,3] y) <float s = {0.5}, uint8 z = {3}, float t = {0.25}> { y = com.microsoft.QLinearMul(a, s, z, b, t, z, s, z) })"},
    {"QLinearSigmoid",
     R"(g (uint8[2,3] a) => (uint8[2,3] y) <float s = {0.5}, uint8 z = {3}> { y = com.microsoft.QLinearSigmoid(a, s, z, s, z) })"},
    {"QLinearLeakyRelu",
     R"(g (uint8[2,3] a) => (uint8[2,3] y) <float s = {0.5}, uint8 z = {3}> { y = com.microsoft.QLinearLeakyRelu <alpha = 0.25> (a, s, z, s, z) })"},
    {"QLinearConcat",
     R"(g (uint8[2,3] a, uint8[2,1] b) => (uint8[2,4] y) <float s = {0.5}, uint8 z = {3}> { y = com.microsoft.QLinearConcat <axis = 1> (s, z, a, s, z, b, s, z) })"},
    {"QLinearGlobalAveragePool",
     R"(g (uint8[1,2,4,4] a) => (uint8[1,2,1,1] y) <float s = {0.5}, uint8 z = {3}> { y = com.microsoft.QLinearGlobalAveragePool(a, s, z, s, z) })"},
};

TEST(QuantizedForms, BothWaysAndThroughAFile) {
  for (const Form& form : kForms) {
    Graph graph = model(form.text);  // operators of com.microsoft are Q/DQ as soon as they are read
    to_qdq(graph);
    const std::string qdq_form = hex(graph_hash(graph));
    EXPECT_EQ(ops(graph).back(), "QuantizeLinear") << form.op;
    onnx_bytes(graph);  // passes the checker
    QuantizedFormReport report = to_qoperator(graph);
    EXPECT_TRUE(report.left.empty()) << form.op << ": " << report.left[0].why;
    EXPECT_EQ(ops(graph), (Ops{form.op}));
    Graph again = read_bytes(onnx_bytes(graph));
    to_qdq(again);
    EXPECT_EQ(ops(again).back(), "QuantizeLinear") << form.op;
    report = to_qoperator(again);
    EXPECT_EQ(ops(again), (Ops{form.op}));
    const Node &a = graph.node(graph.nodes()[0]), &b = again.node(again.nodes()[0]);
    ASSERT_EQ(a.in.size(), b.in.size()) << form.op;
    for (std::size_t i = 0; i < a.in.size(); ++i)
      if (graph.is_constant(a.in[i])) {
        EXPECT_TRUE(equal_bytes(graph.value(a.in[i]).constant, again.value(b.in[i]).constant))
            << form.op << " " << i;
      }
    for (const auto& [key, value] : a.attrs) EXPECT_TRUE(b.has_attr(key)) << key;
  }
}

TEST(ToQdq, ChainsShareTheirDequantizedValues) {
  Graph graph = model(R"(g (uint8[2,2] a) => (uint8[2,2] y) <float s = {0.5}, uint8 z = {3}> {
      b = QLinearMatMul(a, s, z, a, s, z, s, z)
      y = QLinearMatMul(a, s, z, b, s, z, s, z) })");
  to_qdq(graph);
  EXPECT_EQ(ops(graph), (Ops{"DequantizeLinear", "MatMul", "QuantizeLinear", "DequantizeLinear", "MatMul",
                             "QuantizeLinear"}));
}

TEST(ToQdq, InsideABranch) {
  Graph graph =
      model(R"(g (bool c, uint8[2,2] a) => (uint8[2,2] y) <float s = {0.5}, uint8 z = {3}> { y = If (c) <
      then_branch = t () => (uint8[2,2] p) { p = QLinearMatMul(a, s, z, a, s, z, s, z) },
      else_branch = e () => (uint8[2,2] q) { q = Identity(a) }> })");
  EXPECT_EQ(to_qdq(graph).converted.at("QLinearMatMul"), 1);
  onnx_bytes(graph);
}

// --- QOperator

std::string qdq(const std::string& compute, const std::string& more = "") {
  return fmt::format(R"(g (uint8[1,2,4,4] x) => (uint8[1,2,4,4] y)
    <float s = {{0.5}}, uint8 z = {{0}}, int8[2,2,1,1] w = {{1,2,3,4}}, float[2] ws = {{0.5,0.25}}, float[2] b = {{1,-2}}{}> {{
      d = DequantizeLinear(x, s, z)
      e = DequantizeLinear <axis = 0> (w, ws)
      {} }})",
                     more, compute);
}

TEST(ToQOperator, AFloatBiasBecomesCodes) {
  Graph graph = model(qdq("c = Conv(d, e, b) y = QuantizeLinear(c, s, z)"));
  const QuantizedFormReport report = to_qoperator(graph);
  EXPECT_TRUE(report.left.empty());
  EXPECT_EQ(ops(graph), (Ops{"QLinearConv"}));
  const Node& conv = node_of(graph, "QLinearConv");
  EXPECT_EQ(graph.value(conv.in.at(8)).constant.to_ints(),
            (std::vector<std::int64_t>{4, -16}));  // 1/.25, -2/.125
  EXPECT_EQ(graph.value(conv.in.at(5)).constant.dims(), (Dims{2})) << "zero points that were left out";
}

TEST(ToQOperator, AGemmWithCodesOfABias) {
  Graph graph = model(R"(g (uint8[2,3] x) => (uint8[2,2] y)
    <float s = {0.5}, uint8 z = {3}, int8[2,3] w = {1,2,3,4,5,6}, float[2] ws = {0.5,0.25}, int32[2] b = {5,-6}, float[2] bs = {0.25,0.125}> {
      d = DequantizeLinear(x, s, z) e = DequantizeLinear <axis = 0> (w, ws) c = DequantizeLinear <axis = 0> (b, bs)
      m = Gemm <transB = 1> (d, e, c) y = QuantizeLinear(m, s, z) })");
  const QuantizedFormReport report = to_qoperator(graph);
  EXPECT_TRUE(report.left.empty()) << report.left[0].why;
  EXPECT_EQ(ops(graph), (Ops{"QGemm"}));
  EXPECT_EQ(graph.value(node_of(graph, "QGemm").in.at(6)).constant.to_ints(),
            (std::vector<std::int64_t>{5, -6}));
}

TEST(ToQOperator, SaturationIsARelu) {
  Graph graph = model(qdq("c = Conv(d, e) r = Relu(c) y = QuantizeLinear(r, s, z)"));
  to_qoperator(graph);
  EXPECT_EQ(ops(graph), (Ops{"QLinearConv"}));
  Graph other = model(qdq("c = Conv(d, e) r = Relu(c) y = QuantizeLinear(r, s, k)", ", uint8 k = {3}"));
  to_qoperator(other);
  EXPECT_EQ(ops(other), (Ops{"DequantizeLinear", "DequantizeLinear", "Conv", "Relu", "QuantizeLinear"}))
      << "codes below 3 are negative numbers";
}

TEST(ToQOperator, CodesMoveAsTheirValues) {
  Graph graph = model(qdq("m = MaxPool <kernel_shape = [1,1]> (d) y = QuantizeLinear(m, s, z)"));
  to_qoperator(graph);
  EXPECT_EQ(ops(graph), (Ops{"MaxPool"}));
}

struct Left {
  const char *name, *graph, *why;
};

void PrintTo(const Left& l, std::ostream* out) { *out << l.name; }

class LeftAlone : public testing::TestWithParam<Left> {};

TEST_P(LeftAlone, SaysWhy) {
  Graph graph = model(GetParam().graph);
  const std::string before = hex(graph_hash(graph));
  const QuantizedFormReport report = to_qoperator(graph);
  EXPECT_TRUE(report.converted.empty());
  ASSERT_EQ(report.left.size(), 1u);
  EXPECT_NE(report.left[0].why.find(GetParam().why), std::string::npos) << report.left[0].why;
  EXPECT_EQ(hex(graph_hash(graph)), before);
}

const Left kLeft[] = {
    // microsoft/onnxruntime#21176: the largest code is the smallest value
    {"a_negative_scale",
     "g (int8[1,1,2] x) => (int8[1,1,1] y) <float s = {-1}, int8 z = {0}> { d = DequantizeLinear(x, s, z) m "
     "= MaxPool <kernel_shape = [2]> (d) y = QuantizeLinear(m, s, z) }",
     "a scale is not positive"},
    {"another_scale",
     "g (uint8[2,3] x) => (uint8[3,2] y) <float s = {1}, float t = {2}, uint8 z = {0}> { d = "
     "DequantizeLinear(x, s, z) m = Transpose(d) y = QuantizeLinear(m, t, z) }",
     "its input and output have other scales"},
    {"read_in_float",
     "g (uint8[2,3] x) => (uint8[2,3] y, float[2,3] m) <float s = {1}, uint8 z = {0}> { d = "
     "DequantizeLinear(x, s, z) m = Sigmoid(d) y = QuantizeLinear(m, s, z) }",
     "its output is read in float as well"},
    {"no_operator_on_codes",
     "g (uint8[2,3] x) => (uint8[2,3] y) <float s = {1}, uint8 z = {0}> { d = DequantizeLinear(x, s, z) m = "
     "Erf(d) y = QuantizeLinear(m, s, z) }",
     "it has no operator on codes"},
    {"a_float_input",
     "g (uint8[2,3] x, float[2,3] f) => (uint8[2,3] y) <float s = {1}, uint8 z = {0}> { d = "
     "DequantizeLinear(x, s, z) m = Add(d, f) y = QuantizeLinear(m, s, z) }",
     "an input is not quantized"},
    {"a_computed_scale",
     "g (uint8[2,3] x, float s) => (uint8[2,3] y) <uint8 z = {0}> { d = DequantizeLinear(x, s, z) m = "
     "Sigmoid(d) y = QuantizeLinear(m, s, z) }",
     "a scale is computed"},
    {"a_bias_too_large",
     R"(g (uint8[1,1,2] x) => (uint8[1,1,2] y) <float s = {0.5}, uint8 z = {0}, int8[1,1,1] w = {1}, float ws = {0.00000000001}, float[1] b = {5}> {
        d = DequantizeLinear(x, s, z) e = DequantizeLinear(w, ws) c = Conv(d, e, b) y = QuantizeLinear(c, s, z) })",
     "its bias does not fit 32 bits"},
};

INSTANTIATE_TEST_SUITE_P(Nodes, LeftAlone, testing::ValuesIn(kLeft),
                         [](const auto& p) { return std::string(p.param.name); });

}  // namespace
}  // namespace pare
