// Operators of old opsets, run: their values by hand. (opset_test.cpp compares graphs instead.)
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/error.h"
#include "engine/run/session.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare {
namespace {

struct OldForm {
  const char* name;
  int opset;
  const char* graph;  // one input x, float; its outputs in order
  Dims x_dims;
  std::vector<float> x;
  std::vector<std::vector<float>> want;
};

void PrintTo(const OldForm& c, std::ostream* out) { *out << c.name; }

const OldForm kForms[] = {
    {"add_aligned_at_axis_0",
     6,
     "g (float[2,3] x) => (float[2,3] y) <float[2] b = {10, 20}> { y = Add <broadcast = 1, axis = 0> (x, b) "
     "}",
     {2, 3},
     {1, 2, 3, 4, 5, 6},
     {{11, 12, 13, 24, 25, 26}}},
    {"add_aligned_behind_an_unknown_rank",
     6,  // the rank of `a` follows from the graph, not from the file
     R"(g (float[1,2,3] x) => (float[1,2,3] y) <float[2] b = {10, 20}> {
          a = Relu(x) y = Add <broadcast = 1, axis = 1> (a, b) })",
     {1, 2, 3},
     {1, 2, 3, 4, 5, 6},
     {{11, 12, 13, 24, 25, 26}}},
    {"mul_aligned_at_the_end",
     6,
     "g (float[2,2] x) => (float[2,2] y) <float[2] b = {2, 3}> { y = Mul <broadcast = 1> (x, b) }",
     {2, 2},
     {1, 1, 1, 1},
     {{2, 3, 2, 3}}},
    {"prelu_of_channels",
     6,
     "g (float[1,2,2] x) => (float[1,2,2] y) <float[2] s = {0.5, 2}> { y = PRelu(x, s) }",
     {1, 2, 2},
     {-1, 1, -1, 1},
     {{-0.5, 1, -2, 1}}},
    {"reshape_by_attribute",
     1,
     "g (float[4] x) => (float[2,2] y) { y = Reshape <shape = [2, -1]> (x) }",
     {4},
     {1, 2, 3, 4},
     {{1, 2, 3, 4}}},
    {"cast_by_word",
     1,
     R"(g (float[2] x) => (int32[2] i, float[2] y) { i = Cast <to = "INT32"> (x) y = Cast <to = "FLOAT"> (i) })",
     {2},
     {1.75, -1.75},
     {{}, {1, -1}}},
    {"concat_without_axis",
     1,
     "g (float[1,2] x) => (float[1,4] y) { y = Concat(x, x) }",
     {1, 2},
     {1, 2},
     {{1, 2, 1, 2}}},
    {"pad_by_paddings",
     1,
     R"(g (float[2] x) => (float[4] y) { y = Pad <paddings = [1, 1], value = 9.0, mode = "constant"> (x) })",
     {2},
     {1, 2},
     {{9, 1, 2, 9}}},
    {"upsample_1",
     1,
     "g (float[1,1,1,2] x) => (float[1,1,2,4] y) { y = Upsample <height_scale = 2.0, width_scale = 2.0> (x) "
     "}",
     {1, 1, 1, 2},
     {1, 2},
     {{1, 1, 2, 2, 1, 1, 2, 2}}},
    {"upsample_linear",
     9,
     R"(g (float[1,1,1,2] x) => (float[1,1,1,4] y) <float[4] s = {1,1,1,2}> { y = Upsample <mode = "linear"> (x, s) })",
     {1, 1, 1, 2},
     {0, 2},
     {{0, 1, 2, 2}}},
    {"scatter_9",
     9,
     "g (float[3] x) => (float[3] y) <int64[1] i = {1}, float[1] u = {5}> { y = Scatter(x, i, u) }",
     {3},
     {1, 2, 3},
     {{1, 5, 3}}},
    {"slice_to_the_end",
     9,
     "g (float[4] x) => (float[2] y) { y = Slice <starts = [-2], ends = [2147483647]> (x) }",
     {4},
     {1, 2, 3, 4},
     {{3, 4}}},
    {"topk_1",
     7,
     "g (float[4] x) => (float[2] v, int64[2] i) { v, i = TopK <k = 2> (x) }",
     {4},
     {1, 4, 2, 3},
     {{4, 3}, {}}},
    {"clip_without_minimum",
     7,
     "g (float[3] x) => (float[3] y) { y = Clip <max = 1.0> (x) }",
     {3},
     {-3e38F, 0, 2},
     {{-3e38F, 0, 1}}},
    {"clip_11_with_a_bound_left_out",
     11,  // microsoft/onnxruntime#5586
     "g (float[2] x) => (float[2] y) <float h = {1}> { y = Clip(x, , h) }",
     {2},
     {-1e30F, 5},
     {{-1e30F, 1}}},
    {"dropout_mask_is_a_number",
     7,
     "g (float[2] x) => (float[2] y, float[2] m) { y, m = Dropout(x) }",
     {2},
     {3, -4},
     {{3, -4}, {1, 1}}},
    {"batch_norm_places",
     7,  // spatial = 0: a mean and a variance for every place
     R"(g (float[1,1,2] x) => (float[1,1,2] y) <float[1,2] s = {1,2}, float[1,2] b = {0,1}, float[1,2] m = {1,1}, float[1,2] v = {4,1}> {
          y = BatchNormalization <epsilon = 0.0, spatial = 0> (x, s, b, m, v) })",
     {1, 1, 2},
     {5, 3},
     {{2, 5}}},
    {"batch_norm_statistics_read",
     9,  // training: mean 2, variance 1; running 0.5 * 0 + 0.5 * own
     R"(g (float[2,1] x) => (float[2,1] y, float[1] m, float[1] v) <float[1] s = {1}, float[1] b = {0}, float[1] z = {0}> {
          y, m, v, a, c = BatchNormalization <epsilon = 0.0, momentum = 0.5> (x, s, b, z, z) })",
     {2, 1},
     {1, 3},
     {{-1, 1}, {1}, {0.5}}},
    {"batch_norm_statistics_unread",
     9,  // inference with the given mean 0 and variance 4
     R"(g (float[2,1] x) => (float[2,1] y) <float[1] s = {1}, float[1] b = {0}, float[1] z = {0}, float[1] f = {4}> {
          y, m, v, a, c = BatchNormalization <epsilon = 0.0> (x, s, b, z, f) })",
     {2, 1},
     {1, 3},
     {{0.5, 1.5}}},
    {"group_norm_18",
     18,  // each group is (-1, 1) after normalizing; scale 1 and 2, bias 0 and 10, one a group
     R"(g (float[1,4] x) => (float[1,4] y) <float[2] s = {1, 2}, float[2] b = {0, 10}> {
          y = GroupNormalization <num_groups = 2, epsilon = 0.0> (x, s, b) })",
     {1, 4},
     {1, 3, 5, 9},
     {{-1, 1, 8, 12}}},
    {"softmax_of_two_axes",
     11,
     "g (float[1,2,2] x) => (float[1,2,2] y) { y = Softmax <axis = 1> (x) }",
     {1, 2, 2},
     {0, 0, 0, 0},
     {{0.25, 0.25, 0.25, 0.25}}},
};

class OldForms : public testing::TestWithParam<OldForm> {};

TEST_P(OldForms, GiveTheirValues) {
  const OldForm& c = GetParam();
  const auto graph = std::make_shared<const Graph>(text_graph(c.opset, c.graph));
  ThreadPool pool(1);
  SessionOptions options;
  options.pool = &pool;
  Session session(graph, options);
  const std::vector<Tensor> got = session.run({Tensor::from(DType::kF32, c.x_dims, c.x)});
  ASSERT_EQ(got.size(), c.want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (c.want[i].empty()) continue;  // of another type; looked at through the other output
    ASSERT_EQ(got[i].dtype(), DType::kF32);
    ASSERT_EQ(got[i].size(), static_cast<std::int64_t>(c.want[i].size()));
    // All values are small dyadic fractions: exact, but for the square roots and exponentials (4 ulp).
    for (std::size_t k = 0; k < c.want[i].size(); ++k)
      EXPECT_NEAR(got[i].as<float>()[k], c.want[i][k], 5e-7F * std::fabs(c.want[i][k]))
          << "output " << i << "," << k;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, OldForms, testing::ValuesIn(kForms),
                         [](const auto& p) { return std::string(p.param.name); });

TEST(OldForms, RefusedOnesSayWhy) {
  for (const char* graph : {"g (float[2] x, int64[1] t, int64[1] a) => (float[4] y) { y = Tile(x, t, a) }"}) {
    try {
      text_graph(5, graph);
      FAIL() << graph;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
    }
  }
}

}  // namespace
}  // namespace pare
