// Raising: a node of an old opset becomes the graph that a newest-opset file of the same meaning gives.
// Lowering: the graph goes back into the old opset, and an opset that cannot hold it is raised with a reason.
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "graphsurgeon/onnx/proto.h"
#include "graphsurgeon/onnx/write.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare {
namespace {

constexpr int kNewest = 23;  // the text parser's head; nothing below changed later

struct Case {
  const char* name;
  int opset;
  const char* old_form;
  const char* new_form;
  int written = 0;  // the opset that the graph needs when `opset` is asked for; 0: `opset` itself
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    {"squeeze", 11, "g (float[1,2] x) => (float[2] y) { y = Squeeze <axes = [0]> (x) }",
     "g (float[1,2] x) => (float[2] y) <int64[1] a = {0}> { y = Squeeze(x, a) }"},
    {"squeeze_everything", 11, "g (float[1,2] x) => (float[2] y) { y = Squeeze(x) }",
     "g (float[1,2] x) => (float[2] y) { y = Squeeze(x) }"},
    {"unsqueeze", 12, "g (float[2] x) => (float[1,2,1] y) { y = Unsqueeze <axes = [0,-1]> (x) }",
     "g (float[2] x) => (float[1,2,1] y) <int64[2] a = {0,-1}> { y = Unsqueeze(x, a) }"},
    {"reduce_mean", 17, "g (float[2,3] x) => (float[2,1] y) { y = ReduceMean <axes = [1]> (x) }",
     "g (float[2,3] x) => (float[2,1] y) <int64[1] a = {1}> { y = ReduceMean(x, a) }"},
    {"reduce_sum", 12, "g (float[2,3] x) => (float[2] y) { y = ReduceSum <axes = [1], keepdims = 0> (x) }",
     "g (float[2,3] x) => (float[2] y) <int64[1] a = {1}> { y = ReduceSum <keepdims = 0> (x, a) }"},
    {"split_by_sizes", 11, "g (float[5] x) => (float[2] y, float[3] z) { y, z = Split <split = [2,3]> (x) }",
     "g (float[5] x) => (float[2] y, float[3] z) <int64[2] s = {2,3}> { y, z = Split(x, s) }"},
    {"split_in_equal_parts", 13, "g (float[4] x) => (float[2] y, float[2] z) { y, z = Split(x) }",
     "g (float[4] x) => (float[2] y, float[2] z) { y, z = Split <num_outputs = 2> (x) }"},
    {"slice", 9,
     "g (float[4,5] x) => (float[4,2] y) { y = Slice <starts = [1], ends = [3], axes = [1]> (x) }",
     R"(g (float[4,5] x) => (float[4,2] y) <int64[1] s = {1}, int64[1] e = {3}, int64[1] a = {1}> { y = Slice(x, s, e, a) })"},
    {"clip", 10, "g (float[2] x) => (float[2] y) { y = Clip <min = 0.0, max = 6.0> (x) }",
     "g (float[2] x) => (float[2] y) <float l = {0}, float h = {6}> { y = Clip(x, l, h) }"},
    {"clip_without_maximum", 7, "g (float[2] x) => (float[2] y) { y = Clip <min = -1.0> (x) }",
     "g (float[2] x) => (float[2] y) <float l = {-1}> { y = Clip(x, l) }"},
    {"pad", 10, "g (float[2] x) => (float[4] y) { y = Pad <pads = [1,1], value = 2.0> (x) }",
     "g (float[2] x) => (float[4] y) <int64[2] p = {1,1}, float v = {2}> { y = Pad(x, p, v) }"},
    {"topk", 9, "g (float[4] x) => (float[2] y, int64[2] i) { y, i = TopK <k = 2> (x) }",
     "g (float[4] x) => (float[2] y, int64[2] i) <int64[1] k = {2}> { y, i = TopK(x, k) }"},
    {"dropout", 10, "g (float[2] x) => (float[2] y) { y = Dropout <ratio = 0.3> (x) }",
     "g (float[2] x) => (float[2] y) { y = Dropout(x) }"},
    {"softmax_over_the_last_axis", 11, "g (float[2,3] x) => (float[2,3] y) { y = Softmax(x) }",
     "g (float[2,3] x) => (float[2,3] y) { y = Softmax <axis = -1> (x) }"},
    {"softmax_over_two_axes", 11, "g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax <axis = 1> (x) }",
     R"(g (float[2,3,4] x) => (float[2,3,4] y) { s = Shape(x) f = Flatten <axis = 1> (x)
          r = Softmax <axis = -1> (f) y = Reshape(r, s) })"},
    {"batch_normalization", 9,
     R"(g (float[1,2] x) => (float[1,2] y) <float[2] p = {1,2}> { y = BatchNormalization(x, p, p, p, p) })",
     R"(g (float[1,2] x) => (float[1,2] y) <float[2] p = {1,2}> { y = BatchNormalization(x, p, p, p, p) })"},
    {"upsample", 9,  // microsoft/onnxruntime#9197: converted, never only renumbered
     "g (float[1,1,2,2] x) => (float[1,1,4,4] y) <float[4] s = {1,1,2,2}> { y = Upsample(x, s) }",
     R"(g (float[1,1,2,2] x) => (float[1,1,4,4] y) <float[4] s = {1,1,2,2}> {
          y = Resize <coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, , s) })"},
    {"upsample_7", 7,
     "g (float[1,1,2,2] x) => (float[1,1,4,4] y) { y = Upsample <scales = [1.0, 1.0, 2.0, 2.0]> (x) }",
     R"(g (float[1,1,2,2] x) => (float[1,1,4,4] y) <float[4] s = {1,1,2,2}> {
          y = Resize <coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, , s) })"},
    {"resize_with_empty_scales", 11,
     R"(g (float[1,1,2,2] x) => (float[1,1,4,4] y) <float[0] e = {}, int64[4] t = {1,1,4,4}> { y = Resize(x, e, e, t) })",
     R"(g (float[1,1,2,2] x) => (float[1,1,4,4] y) <int64[4] t = {1,1,4,4}> { y = Resize(x, , , t) })"},
    {"scatter", 9,
     R"(g (float[3] x) => (float[3] y) <int64[1] i = {1}, float[1] u = {5}> { y = Scatter(x, i, u) })",
     R"(g (float[3] x) => (float[3] y) <int64[1] i = {1}, float[1] u = {5}> { y = ScatterElements(x, i, u) })"},
    {"one_scale_for_a_tensor", 10,
     "g (float[2] x) => (uint8[2] y) <float s = {0.5}> { y = QuantizeLinear(x, s) }",
     "g (float[2] x) => (uint8[2] y) <float s = {0.5}> { y = QuantizeLinear(x, s) }"},
    {"inside_a_branch", 10,  // onnx/onnx#3471, #3328
     R"(g (bool c, float[2] x) => (float[2] y) { y = If (c) <
          then_branch = t () => (float[2] a) { a = Clip <min = 2.0, max = 3.0> (x) },
          else_branch = e () => (float[2] b) { b = Relu(x) }> })",
     R"(g (bool c, float[2] x) => (float[2] y) { y = If (c) <
          then_branch = t () => (float[2] a) <float l = {2}, float h = {3}> { a = Clip(x, l, h) },
          else_branch = e () => (float[2] b) { b = Relu(x) }> })"},
};

class Opsets : public testing::TestWithParam<Case> {};

// Names of constants inside branches are made up too: texts are compared without "_min", "_max".
std::string comparable(const Graph& graph) {
  std::string text = canonical_text(graph);
  for (const char* made_up : {"%a_min", "%a_max"}) {
    const std::string to = std::string(made_up) == "%a_min" ? "%l" : "%h";
    for (std::size_t at = text.find(made_up); at != std::string::npos; at = text.find(made_up))
      text.replace(at, 6, to);
  }
  return text;
}

TEST_P(Opsets, OldFormBecomesTheNewOne) {
  const Case& c = GetParam();
  EXPECT_EQ(comparable(text_graph(c.opset, c.old_form)), comparable(text_graph(kNewest, c.new_form)));
}

TEST_P(Opsets, NewFormGoesBack) {
  const Case& c = GetParam();
  const Graph graph = text_graph(kNewest, c.new_form);
  WriteOptions options;
  options.opset = c.opset;
  WriteReport report;
  const std::string bytes = onnx_bytes(graph, options, &report);
  EXPECT_EQ(report.asked, c.opset);
  const int wanted = c.written != 0 ? c.written : c.opset;
  if (std::string(c.name) == "softmax_over_two_axes") return;  // Flatten and Reshape stay, at any opset
  EXPECT_EQ(report.opset, wanted);
  EXPECT_EQ(report.why.empty(), wanted == c.opset);
  const Graph again = read_bytes(bytes);
  EXPECT_EQ(again.opset, wanted);
  EXPECT_EQ(comparable(again), comparable(graph));
}

INSTANTIATE_TEST_SUITE_P(Cases, Opsets, testing::ValuesIn(kCases),
                         [](const auto& p) { return std::string(p.param.name); });

// --- what asks for a newer opset

struct Need {
  const char* name;
  int from;  // opset of the text
  const char* graph;
  int asked, written;
  const char* why;
};

void PrintTo(const Need& n, std::ostream* out) { *out << n.name; }

const Need kNeeds[] = {
    {"scale_a_channel", 13,
     R"(g (int8[2,3] x) => (float[2,3] y) <float[2] s = {1,2}> { y = DequantizeLinear <axis = 0> (x, s) })",
     10, 13, "its scale is not one number"},
    {"float8", 19, R"(g (float8e4m3fn[2] x) => (float[2] y) <float s = {1}> { y = DequantizeLinear(x, s) })",
     17, 19, "float8"},
    {"blocks", 21,
     R"(g (int8[4,2] x) => (float[4,2] y) <float[2,2] s = {1,2,3,4}> {
          y = DequantizeLinear <axis = 0, block_size = 2> (x, s) })",
     17, 21, "'block_size' is newer"},
    {"int4", 21, R"(g (int4[2] x) => (float[2] y) <float s = {1}> { y = DequantizeLinear(x, s) })", 17, 21,
     "int4"},
    {"gelu", 20, "g (float[2] x) => (float[2] y) { y = Gelu(x) }", 17, 20, "the operator is newer"},
    {"computed_axes", 18, R"(g (float[2,3] x, int64[1] a) => (float[P,Q] y) { y = ReduceMean(x, a) })", 17,
     18, "axes are computed"},
    {"softmax_along_another_axis", 13, "g (float[2,3] x) => (float[2,3] y) { y = Softmax <axis = 0> (x) }",
     11, 13, "not the last"},
    {"stepped_slice", 13,
     R"(g (float[4] x) => (float[2] y) <int64[1] s = {0}, int64[1] e = {4}, int64[1] a = {0}, int64[1] t = {2}> {
          y = Slice(x, s, e, a, t) })",
     9, 10, "steps"},
};

class Needs : public testing::TestWithParam<Need> {};

TEST_P(Needs, RaisesTheOpsetAndSaysWhy) {
  const Need& n = GetParam();
  const Graph graph =
      text_model(fmt::format("<ir_version: 13, opset_import: [\"\": {}]> {}", n.from, n.graph));
  WriteOptions options;
  options.opset = n.asked;
  WriteReport report;
  const std::string bytes = onnx_bytes(graph, options, &report);
  EXPECT_EQ(report.opset, n.written);
  ASSERT_FALSE(report.why.empty());
  EXPECT_NE(report.why.back().find(n.why), std::string::npos) << report.why.back();
  EXPECT_EQ(comparable(read_bytes(bytes)), comparable(graph));
}

INSTANTIATE_TEST_SUITE_P(Cases, Needs, testing::ValuesIn(kNeeds),
                         [](const auto& p) { return std::string(p.param.name); });

TEST(WriteOnnx, VersionsNamesAndMetadata) {
  Graph graph = text_graph(
      19, "g (float[N,2] image) => (float[N,2] logits) { [first] a = Relu(image) [first] logits = Abs(a) }");
  graph.metadata["calibration"] = "abc";
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(onnx_bytes(graph)));
  EXPECT_EQ(model.ir_version(), 9);
  EXPECT_EQ(model.opset_import(0).version(), 19);
  EXPECT_EQ(model.producer_name(), "pare");
  ASSERT_EQ(model.metadata_props_size(), 2);
  EXPECT_EQ(model.metadata_props(0).key(), "calibration");
  EXPECT_EQ(model.metadata_props(1).key(), "pare.version");
  EXPECT_EQ(model.graph().input(0).name(), "image");
  EXPECT_EQ(model.graph().input(0).type().tensor_type().shape().dim(0).dim_param(), "N");
  EXPECT_EQ(model.graph().output(0).name(), "logits");
  EXPECT_EQ(model.graph().node(0).output(0), "a");
  EXPECT_EQ(model.graph().node(0).name(), "first");
  EXPECT_EQ(model.graph().node(1).name(), "first_1") << "tools key on node names";
}

TEST(WriteOnnx, RefusesOpsetsOutOfRange) {
  const Graph graph = text_graph(17, "g (float[2] x) => (float[2] y) { y = Relu(x) }");
  for (const int opset : {6, 28, -1}) {
    WriteOptions options;
    options.opset = opset;
    try {
      onnx_bytes(graph, options);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
    }
  }
}

}  // namespace
}  // namespace pare
