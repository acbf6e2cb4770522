// Down-conversion: what stands for a node that an older opset lacks, that it computes the same, and what is
// refused. The whole backend suite is converted in tests/conformance; real models are here.
#include "graphsurgeon/onnx/convert_opset.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

#include "engine/base/error.h"
#include "engine/base/paths.h"
#include "engine/run/session.h"
#include "graphsurgeon/graph_hash.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/onnx/read.h"
#include "graphsurgeon/onnx/write.h"
#include "graphsurgeon/self_check.h"
#include "tests/unit/graphsurgeon/models.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare {
namespace {

// Written with exactly this opset, and read back.
Graph through(const Graph& graph, int opset, ConvertOpsetReport* report = nullptr) {
  Graph changed = graph;
  const ConvertOpsetReport converted = convert_opset(changed, opset);
  if (report != nullptr) *report = converted;
  WriteReport written;
  const std::string bytes = onnx_bytes(changed, {}, &written);
  EXPECT_EQ(written.opset, opset) << (written.why.empty() ? "" : written.why[0]);
  const Graph again = read_onnx_bytes(std::as_bytes(std::span(bytes)), nullptr, "", "converted");
  EXPECT_EQ(again.opset, opset);
  return again;
}

struct Case {
  const char* name;
  int from, to;
  const char* graph;
  const char* replaced;  // "" when the node itself is written differently
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    {"softmax_along_the_first_axis", 13, 11,
     "g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax <axis = 0> (x) }", "Softmax"},
    {"split_with_a_rest", 18, 13,
     "g (float[7] x) => (float[3] a, float[3] b, float[1] c) { a, b, c = Split <num_outputs = 3> (x) }",
     "Split"},
    {"mean_of_computed_axes", 18, 13,
     "g (float[2,3,4] x) => (float[P,Q,R] y) { s = Shape <start = 2, end = 3> (x) k = Sub(s, s) y = "
     "ReduceMean(x, k) }",
     "ReduceMean"},
    {"reduces_nothing", 18, 11,
     "g (float[2,3] x) => (float[2,3] y) { y = ReduceL2 <noop_with_empty_axes = 1> (x) }", "ReduceL2"},
    {"slice_with_steps", 13, 9,
     R"(g (float[7,5] x) => (float[P,Q] y) <int64[2] s = {6,0}, int64[2] e = {-100,4}, int64[2] a = {0,1}, int64[2] t = {-2,3}> {
          y = Slice(x, s, e, a, t) })",
     "Slice"},
    {"slice_with_a_negative_axis", 13, 10,
     "g (float[7,5] x) => (float[7,2] y) <int64[1] s = {1}, int64[1] e = {3}, int64[1] a = {-1}> { y = "
     "Slice(x, s, e, a) }",
     ""},
    {"clip_between_computed_bounds", 13, 9,
     "g (float[5] x, float l) => (float[5] y) { h = Abs(l) m = Neg(h) y = Clip(x, m, h) }", "Clip"},
    {"clip_of_integers", 13, 11,
     "g (int64[5] x) => (int64[5] y) <int64 l = {1}, int64 h = {3}> { y = Clip(x, l, h) }", "Clip"},
    {"maximum_of_integers", 13, 11,
     "g (int64[5] x, int64[5] z) => (int64[5] y) <int64[1] two = {2}> { y = Max(x, z, two) }", "Max"},
    {"smallest_of_topk", 13, 10,
     "g (float[6] x) => (float[3] y, int64[3] i) <int64[1] k = {3}> { y, i = TopK <largest = 0> (x, k) }",
     "TopK"},
    {"part_of_a_shape", 15, 13, "g (float[2,3,4] x) => (int64[2] y) { y = Shape <start = -2> (x) }", "Shape"},
    {"a_scale_a_channel", 13, 11,
     R"(g (int8[2,3] x) => (float[2,3] y) <float[3] s = {0.5,2,4}, int8[3] z = {1,-2,3}> { y = DequantizeLinear(x, s, z) })",
     "DequantizeLinear"},
    {"codes_a_channel", 13, 11,
     R"(g (float[2,3] x) => (int8[2,3] y) <float[3] s = {0.01,2,4}, int8[3] z = {1,-2,3}> { y = QuantizeLinear(x, s, z) })",
     "QuantizeLinear"},
    {"one_scale_in_a_list", 13, 10,
     "g (float[2,3] x) => (uint8[2,3] y) <float[1] s = {0.01}, uint8[1] z = {7}> { y = QuantizeLinear(x, s, "
     "z) }",
     ""},
    {"integer_exponent", 12, 11, "g (float[3] x) => (float[3] y) <int64 e = {2}> { y = Pow(x, e) }", "Pow"},
    {"equal_floats", 11, 9, "g (float[3] x, float[3] z) => (bool[3] y) { y = Equal(x, z) }", "Equal"},
    {"depth_to_space_crd", 13, 9,
     "g (float[2,8,2,3] x) => (float[2,2,4,6] y) { y = DepthToSpace <blocksize = 2, mode = \"CRD\"> (x) }",
     "DepthToSpace"},
    {"negative_indices", 11, 9,
     "g (float[4,2] x) => (float[2,2] y) <int64[2] i = {-1,0}> { y = Gather(x, i) }", "Gather"},
    {"pads_of_one_axis", 18, 11,
     "g (float[2,3] x) => (float[2,6] y) <int64[2] p = {1,2}, int64[1] a = {-1}> { y = Pad(x, p, , a) }", ""},
    {"pads_of_one_axis_as_attributes", 18, 10,
     "g (float[2,3] x) => (float[2,6] y) <int64[2] p = {1,2}, int64[1] a = {-1}> { y = Pad(x, p, , a) }", ""},
    {"computed_pads_of_one_axis", 18, 13,
     "g (float[2,3] x, int64[2] n) => (float[2,P] y) <int64[1] a = {1}> { p = Mul(n, n) y = Pad(x, p, , a) }",
     "Pad"},
    {"resize_of_two_axes", 18, 13,
     R"(g (float[1,2,3,4] x) => (float[1,2,6,8] y) <int64[2] t = {6,8}> { y = Resize <axes = [2,3], mode = "linear"> (x, , , t) })",
     "Resize"},
    {"upsample_again", 13, 9,
     R"(g (float[1,1,2,2] x) => (float[1,1,4,4] y) <float[4] s = {1,1,2,2}> {
          y = Resize <coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, , s) })",
     ""},
    {"upsample_with_attributes", 13, 7,
     R"(g (float[1,1,2,2] x) => (float[1,1,4,4] y) <int64[4] t = {1,1,4,4}> {
          y = Resize <coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, , , t) })",
     "Resize"},
    {"scatter_again", 11, 9,
     "g (float[3] x) => (float[3] y) <int64[1] i = {1}, float[1] u = {5}> { y = ScatterElements(x, i, u) }",
     ""},
    {"gemm_without_c", 11, 9,
     "g (float[2,3] x) => (float[2,2] y) <float[3,2] w = {1,2,3,4,5,6}> { y = Gemm(x, w) }", ""},
    {"triangle", 14, 13, "g (float[2,3,4] x) => (float[2,3,4] y) <int64 k = {1}> { y = Trilu(x, k) }",
     "Trilu"},
    {"lower_triangle", 14, 11, "g (float[4,3] x) => (float[4,3] y) { y = Trilu <upper = 0> (x) }", "Trilu"},
    // by ONNX's function bodies
    {"gelu", 20, 11, "g (float[2,3] x) => (float[2,3] y) { y = Gelu(x) }", "Gelu"},
    {"gelu_tanh", 20, 9, "g (float[2,3] x) => (float[2,3] y) { y = Gelu <approximate = \"tanh\"> (x) }",
     "Gelu"},
    {"layer_normalization", 17, 11,
     "g (float[2,4] x) => (float[2,4] y) <float[4] s = {1,2,3,4}, float[4] b = {0,1,0,1}> { y = "
     "LayerNormalization(x, s, b) }",
     "LayerNormalization"},
    {"group_normalization", 21, 13,
     "g (float[2,4,3] x) => (float[2,4,3] y) <float[4] s = {1,2,3,4}, float[4] b = {0,1,0,1}> { y = "
     "GroupNormalization <num_groups = 2> (x, s, b) }",
     "GroupNormalization"},
    {"rms_normalization", 23, 13,
     "g (float[2,4] x) => (float[2,4] y) <float[4] s = {1,2,3,4}> { y = RMSNormalization(x, s) }",
     "RMSNormalization"},
    {"attention", 23, 17,
     "g (float[1,2,3,4] q, float[1,2,5,4] k, float[1,2,5,4] v) => (float[1,2,3,4] y) { y = Attention(q, k, "
     "v) }",
     "Attention"},
    {"hard_swish", 14, 13, "g (float[2,3] x) => (float[2,3] y) { y = HardSwish(x) }", "HardSwish"},
    {"mish", 18, 13, "g (float[2,3] x) => (float[2,3] y) { y = Mish(x) }", "Mish"},
    {"inside_a_branch", 20, 13,
     R"(g (bool c, float[2] x) => (float[2] y) { y = If (c) <
          then_branch = t () => (float[2] a) { a = Gelu(x) },
          else_branch = e () => (float[2] b) { b = Relu(x) }> })",
     "Gelu"},
};

class Down : public testing::TestWithParam<Case> {};

TEST_P(Down, ComputesTheSame) {
  const Case& c = GetParam();
  const Graph graph =
      text_model(fmt::format("<ir_version: 10, opset_import: [\"\": {}]> {}", c.from, c.graph));
  ConvertOpsetReport report;
  const Graph after = through(graph, c.to, &report);
  EXPECT_EQ(report.from, c.from);
  EXPECT_EQ(report.to, c.to);
  std::string replaced;
  for (const auto& [op, count] : report.replaced)
    if (c.replaced == op) replaced = op;
  EXPECT_EQ(replaced, c.replaced);
  if (*c.replaced == '\0') {
    EXPECT_TRUE(report.replaced.empty());
  }
  ThreadPool pool(1);
  const SelfCheckReport check = compare_on_generated(graph, after, {}, pool);
  EXPECT_TRUE(check.done) << check.why_not;
  EXPECT_TRUE(check.passed) << check.failure;
}

TEST_P(Down, AndUpAgain) {
  const Case& c = GetParam();
  const Graph graph =
      text_model(fmt::format("<ir_version: 10, opset_import: [\"\": {}]> {}", c.from, c.graph));
  for (const int opset : {21, 25, 27}) {
    if (opset < c.from) continue;
    EXPECT_EQ(hex(graph_hash(through(graph, opset))), hex(graph_hash(graph))) << opset;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Down, testing::ValuesIn(kCases),
                         [](const auto& p) { return std::string(p.param.name); });

// --- what cannot be

struct Refusal {
  const char* name;
  int from, to;
  const char* graph;
  const char* why;
  const char* hint;
};

void PrintTo(const Refusal& r, std::ostream* out) { *out << r.name; }

const Refusal kRefusals[] = {
    {"no_such_operator", 16, 13,
     "g (float[1,1,2,2] x, float[1,2,2,2] p) => (float[1,1,2,2] y) { [sample] y = GridSample(x, p) }",
     "opset 13 cannot hold node 'sample' (GridSample): the operator is newer", "Opset 16 holds it"},
    {"computed_axes", 18, 11, "g (float[2,3] x, int64[1] a) => (float[P,Q] y) { y = ReduceMax(x, a) }",
     "its axes are computed", "Opset 18"},
    {"blocks", 21, 17,
     "g (int8[4,2] x) => (float[4,2] y) <float[2,2] s = {1,2,3,4}> { y = DequantizeLinear <axis = 0, "
     "block_size = 2> (x, s) }",
     "'block_size' is newer", "Opset 21"},
    {"float8", 19, 17, "g (float8e4m3fn[2] x) => (float[2] y) <float s = {1}> { y = DequantizeLinear(x, s) }",
     "float8", "Opset 19"},
};

class Refused : public testing::TestWithParam<Refusal> {};

TEST_P(Refused, NamesNodeReasonAndRemedy) {
  const Refusal& r = GetParam();
  Graph graph = text_model(fmt::format("<ir_version: 10, opset_import: [\"\": {}]> {}", r.from, r.graph));
  const std::string before = hex(graph_hash(graph));
  try {
    convert_opset(graph, r.to);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find(r.why), std::string::npos) << error.what();
    EXPECT_NE(error.hint().find(r.hint), std::string::npos) << error.hint();
    EXPECT_FALSE(error.where().empty());
  }
  EXPECT_EQ(hex(graph_hash(graph)), before);
  EXPECT_EQ(graph.opset, r.from);
}

INSTANTIATE_TEST_SUITE_P(Cases, Refused, testing::ValuesIn(kRefusals),
                         [](const auto& p) { return std::string(p.param.name); });

// Found by fuzzing: flattened and shaped back, sizes of 0 were taken for sizes to copy.
TEST(ConvertOpset, SoftmaxOfNothing) {
  const Graph graph =
      text_graph(13, "g (float[4,5,1,0] x) => (float[4,5,1,0] y) { y = Softmax <axis = -2> (x) }");
  EXPECT_EQ(to_string(through(graph, 11).value(through(graph, 11).outputs[0]).shape), "[4,5,1,0]");
}

TEST(ConvertOpset, OutOfRange) {
  Graph graph = text_graph(17, "g (float[2] x) => (float[2] y) { y = Relu(x) }");
  for (const int opset : {6, 28, -1, 0}) EXPECT_THROW(convert_opset(graph, opset), Error);
}

// Pads computed from constants are folded where the opset wants them in the node.
TEST(ConvertOpset, FoldsWhereThatHelps) {
  const Graph graph =
      text_graph(13, R"(g (float[2] x) => (float[5] y) <int64[2] a = {1,1}, int64[2] b = {0,1}> {
      p = Add(a, b) y = Pad(x, p) })");
  ConvertOpsetReport report;
  const Graph after = through(graph, 9, &report);
  EXPECT_TRUE(report.folded);
  EXPECT_EQ(after.node_count(), 1u);
}

// --- real models: 9, 11, 13, 17, 21, 25

class RealModels : public testing::TestWithParam<std::string> {};

// Silero's inputs do not come from symbols that can be guessed.
std::vector<Tensor> inputs_of(const Graph& graph) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0F, 0.1F);
  std::vector<Tensor> all;
  for (const ValueId id : graph.inputs) {
    const Value& value = graph.value(id);
    if (value.dtype == DType::kI64) {
      all.push_back(Tensor::from(DType::kI64, {}, std::vector<std::int64_t>{16000}));
      continue;
    }
    Tensor t = Tensor::allocate(DType::kF32, value.name == "state" ? Dims{2, 1, 128} : Dims{1, 576});
    for (std::int64_t i = 0; i < t.size(); ++i) t.mut<float>()[i] = normal(random);
    all.push_back(std::move(t));
  }
  return all;
}

void expect_close(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t o = 0; o < got.size(); ++o) {
    ASSERT_EQ(got[o].dims(), want[o].dims());
    for (std::int64_t i = 0; i < got[o].size(); ++i)
      ASSERT_NEAR(got[o].as<float>()[i], want[o].as<float>()[i], 1e-5) << o << " " << i;
  }
}

TEST_P(RealModels, EveryOpsetGivesTheSameModel) {
  const Graph graph = load_model(GetParam());
  ThreadPool pool(2);
  for (const int opset : {9, 11, 13, 17, 21, 25}) {
    const bool beyond =
        GetParam().find("mlsd") != std::string::npos || GetParam().find("silero_vad_v") != std::string::npos;
    if (opset == 9 && beyond) {  // half-pixel Resize; Unsqueeze(-1) of an unknown rank
      Graph copy = graph;
      EXPECT_THROW(convert_opset(copy, opset), Error);
      continue;
    }
    const Graph after = through(graph, opset);
    if (hex(graph_hash(after)) == hex(graph_hash(graph))) continue;  // the same graph computes the same
    const bool silero = GetParam().find("silero_vad_v") != std::string::npos;
    if (!silero) {
      const SelfCheckReport check = compare_on_generated(graph, after, {}, pool);
      EXPECT_TRUE(check.done) << opset << ": " << check.why_not;
      EXPECT_TRUE(check.passed) << opset << ": " << check.failure;
      continue;
    }
    SessionOptions options;
    options.pool = &pool;
    Session first(std::make_shared<const Graph>(graph), options),
        second(std::make_shared<const Graph>(after), options);
    expect_close(second.run(inputs_of(after)), first.run(inputs_of(graph)));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RealModels, testing::ValuesIn(real_models()), [](const auto& p) {
  std::string name = file_stem(p.param);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

}  // namespace
}  // namespace pare
