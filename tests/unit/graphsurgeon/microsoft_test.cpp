// What com.microsoft's operators become, what is refused, and broken nodes. (Their values:
// tests/golden/microsoft.)
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare {
namespace {

Graph microsoft_graph(const std::string& graph) {
  return text_model("<ir_version: 10, opset_import: [\"\": 21, \"com.microsoft\": 1]> " + graph);
}

int count_of(const Graph& graph, std::string_view op) {
  int count = 0;
  for (const NodeId id : graph.nodes()) count += graph.node(id).is(op) ? 1 : 0;
  return count;
}

TEST(Microsoft, PackedWeightsBecomeFourBitCodesInPlace) {
  const Graph graph = microsoft_graph(
      R"(g (float[2,16] a) => (float[2,1] y) <uint8[1,1,8] b = {1,2,3,4,5,6,7,8}, float[1,1] s = {0.5}> {
           y = com.microsoft.MatMulNBits <K = 16, N = 1, bits = 4, block_size = 16> (a, b, s) })");
  ASSERT_EQ(graph.node_count(), 3U);
  const Node& weight = graph.node(graph.nodes()[0]);
  ASSERT_TRUE(weight.is("DequantizeLinear"));
  EXPECT_EQ(weight.attr("block_size", std::int64_t{0}), 16);
  const Tensor& codes = graph.value(weight.in[0]).constant;
  EXPECT_EQ(codes.dtype(), DType::kU4);
  EXPECT_EQ(codes.dims(), (Dims{1, 16}));
  EXPECT_EQ(codes.as<std::uint8_t>()[0], 1);  // the first code in the low bits, as it was
  const Tensor& zero = graph.value(weight.in[2]).constant;
  EXPECT_EQ(zero.as<std::uint8_t>()[0] & 15, 8);
}

TEST(Microsoft, RanksInsideOfTheGraphAreInferred) {
  const Graph graph = microsoft_graph(
      R"(g (float[2,3] x, float[4,3] z) => (float[2,4] y) { a = Relu(x) b = Relu(z) y = com.microsoft.FusedMatMul <transB = 1> (a, b) })");
  EXPECT_EQ(count_of(graph, "Transpose"), 1);
  EXPECT_EQ(count_of(graph, "Einsum"), 0);
  EXPECT_EQ(count_of(graph, "MatMul"), 1);
}

TEST(Microsoft, WithoutAZeroPointCodesKeepTheirType) {
  const Graph graph = microsoft_graph(
      R"(g (int8[2] x) => (int8[2] y) <float s = {0.5}> { y = com.microsoft.QLinearSigmoid(x, s, , s) })");
  EXPECT_EQ(graph.value(graph.outputs[0]).dtype, DType::kI8);
}

struct Broken {
  const char* graph;
  ErrorCode code;
};

TEST(Microsoft, RefusesWhatItCannotSayAndWhatIsBroken) {
  const Broken kBroken[] = {
      {"g (uint8[1,1,8] b, float[1,16] a, float[1,1] s) => (float[1,1] y) { y = com.microsoft.MatMulNBits <K "
       "= 16, N = 1, block_size = 16> (a, b, s) }",
       ErrorCode::kUnsupported},  // the codes are computed
      {"g (float[1,16] a, float[1,1] s) => (float[1,1] y) <uint8[1,1,4] b = {1,2,3,4}> { y = "
       "com.microsoft.MatMulNBits <K = 16, N = 1, block_size = 16> (a, b, s) }",
       ErrorCode::kBadFile},  // four bytes are too few
      {"g (float[1,16] a, float[1,1] s) => (float[1,1] y) <uint8[1,1,8] b = {1,2,3,4,5,6,7,8}> { y = "
       "com.microsoft.MatMulNBits <K = 4611686018427387904, N = 1, block_size = 16> (a, b, s) }",
       ErrorCode::kBadFile},
      {"g (float[1,16] a, float[1,1] s) => (float[1,1] y) <uint8[1,1,8] b = {1,2,3,4,5,6,7,8}> { y = "
       "com.microsoft.MatMulNBits <K = 16, N = 1, block_size = 0> (a, b, s) }",
       ErrorCode::kBadFile},
      {"g (float[1,16] a, float[1,1] s) => (float[1,1] y) <uint8[1,1,8] b = {1,2,3,4,5,6,7,8}> { y = "
       "com.microsoft.MatMulNBits <K = 16, N = 1, bits = 3, block_size = 16> (a, b, s) }",
       ErrorCode::kUnsupported},
      {"g (int8[1] x) => (float[1] y) { y = com.microsoft.DequantizeLinear(x) }", ErrorCode::kBadFile},
      {"g (int8[1] x) => (float[1] y) { y = com.microsoft.DequantizeLinear(x, , x) }", ErrorCode::kBadFile},
      {"g (uint8[1] x) => (uint8[1] y) { y = com.microsoft.QLinearAdd(x) }", ErrorCode::kBadFile},
      {"g (float[1,3,8] x) => (float[1,3,8] y) { y = com.microsoft.MultiHeadAttention <num_heads = 2> (x) }",
       ErrorCode::kUnsupported},
      {"g (float[1,3,8] x) => (float[1,3,8] y) { y = com.microsoft.MultiHeadAttention <num_heads = 0> (x, x, "
       "x) }",
       ErrorCode::kBadFile},
      {"g (float[1,3,8] x, float[8,24] w) => (float[1,3,8] y) { y = com.microsoft.Attention <num_heads = 2, "
       "do_rotary = 1> (x, w) }",
       ErrorCode::kUnsupported},
      {"g (float[1,1,4,4] x, float[1,1,2,2] w) => (float[1,1,3,3] y) { y = com.microsoft.FusedConv "
       "<activation = \"Swish\"> (x, w) }",
       ErrorCode::kUnsupported},
      {"g (float[1,3,8] x, int32[1] s, int32 t) => (float[1,3,8] y) { y = com.microsoft.GroupQueryAttention "
       "<num_heads = 3, kv_num_heads = 2> (x, x, x, , , s, t) }",
       ErrorCode::kBadFile},
      {"g (float[2,8] x, float[2,8] z, float[8] c) => (float[2,8] y, float[2] v) { y, u, v = "
       "com.microsoft.SkipSimplifiedLayerNormalization(x, z, c) }",
       ErrorCode::kUnsupported},
  };
  for (const Broken& b : kBroken) {
    try {
      microsoft_graph(b.graph);
      ADD_FAILURE() << b.graph;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), b.code) << b.graph << "\n" << error.what();
    }
  }
}

}  // namespace
}  // namespace pare
