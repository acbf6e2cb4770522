// Passes on several nodes: Slices, Concats, Transposes, Gemm, pools, Loops; what each must leave alone.
#include <gtest/gtest.h>

#include "tests/unit/graphsurgeon/pass_cases.h"

namespace pare {
namespace {

const PassCase kCases[] = {
    // --- merge_slices
    {"two_slices", &kMergeSlices,  // inisis/OnnxSlim#277: elements 3 to 6
     R"(g (float[20] x) => (float[4] y) <int64[1] s1 = {2}, int64[1] e1 = {10}, int64[1] s2 = {1}, int64[1] e2 = {5}> {
          a = Slice(x, s1, e1) y = Slice(a, s2, e2) })",
     R"(g (float[20] x) => (float[4] y) <int64[1] s1 = {2}, int64[1] e1 = {10}, int64[1] s = {3}, int64[1] e = {7}, int64[1] ax = {0}> {
          a = Slice(x, s1, e1) y = Slice(x, s, e, ax) })"},
    {"slice_of_every_second", &kMergeSlices,  // elements 4 and 6
     R"(g (float[20] x) => (float[2] y) <int64[1] s1 = {2}, int64[1] e1 = {10}, int64[1] ax = {0}, int64[1] t = {2}, int64[1] s2 = {1}, int64[1] e2 = {3}> {
          a = Slice(x, s1, e1, ax, t) y = Slice(a, s2, e2) })",
     R"(g (float[20] x) => (float[2] y) <int64[1] s1 = {2}, int64[1] e1 = {10}, int64[1] ax = {0}, int64[1] t = {2}, int64[1] s = {4}, int64[1] e = {8}, int64[1] ax2 = {0}, int64[1] t2 = {2}> {
          a = Slice(x, s1, e1, ax, t) y = Slice(x, s, e, ax2, t2) })"},
    {"slices_of_two_axes", &kMergeSlices,
     R"(g (float[N,9] x) => (float[M,4] y) <int64[1] s1 = {-3}, int64[1] e1 = {9}, int64[1] a0 = {0}, int64[1] s2 = {1}, int64[1] e2 = {5}, int64[1] a1 = {-1}> {
          a = Slice(x, s1, e1, a0) y = Slice(a, s2, e2, a1) })",
     R"(g (float[N,9] x) => (float[M,4] y) <int64[1] s1 = {-3}, int64[1] e1 = {9}, int64[1] a0 = {0}, int64[2] s = {-3,1}, int64[2] e = {9,5}, int64[2] ax = {0,1}> {
          a = Slice(x, s1, e1, a0) y = Slice(x, s, e, ax) })"},
    {"slice_from_the_back_of_a_slice", &kMergeSlices,
     R"(g (float[20] x) => (float[1] y) <int64[1] s1 = {2}, int64[1] e1 = {10}, int64[1] s2 = {-1}, int64[1] e2 = {8}> {
          a = Slice(x, s1, e1) y = Slice(a, s2, e2) })",
     nullptr},
    {"slice_backwards", &kMergeSlices,
     R"(g (float[20] x) => (float[8] y) <int64[1] s1 = {9}, int64[1] e1 = {1}, int64[1] ax = {0}, int64[1] t = {-1}, int64[1] s2 = {0}, int64[1] e2 = {8}> {
          a = Slice(x, s1, e1, ax, t) y = Slice(a, s2, e2) })",
     nullptr},
    // --- merge_concats
    {"concat_of_concat", &kMergeConcats,
     "g (float[2] x, float[3] z) => (float[7] y) { a = Concat <axis = 0> (x, z) y = Concat <axis = -1> (a, "
     "x) }",
     R"(g (float[2] x, float[3] z) => (float[7] y) { a = Concat <axis = 0> (x, z) y = Concat <axis = -1> (x, z, x) })"},
    {"concat_along_another_axis", &kMergeConcats,
     R"(g (float[2,2] x) => (float[4,4] y) { a = Concat <axis = 0> (x, x) y = Concat <axis = 1> (a, a) })",
     nullptr},
    {"concat_that_others_read", &kMergeConcats,
     R"(g (float[2] x) => (float[6] y, float[4] z) { a = Concat <axis = 0> (x, x) y = Concat <axis = 0> (a, x) z = Relu(a) })",
     nullptr},
    // --- push_transposes
    {"transposes_around_a_relu", &kPushTransposes,
     R"(g (float[1,2,3,4] x) => (float[1,2,3,4] y) {
          a = Transpose <perm = [0,2,3,1]> (x) b = Relu(a) y = Transpose <perm = [0,3,1,2]> (b) })",
     R"(g (float[1,2,3,4] x) => (float[1,2,3,4] y) {
          a = Transpose <perm = [0,2,3,1]> (x) c = Relu(x) b = Transpose <perm = [0,2,3,1]> (c) y = Transpose <perm = [0,3,1,2]> (b) })"},
    {"channel_vector_turns_with_it", &kPushTransposes,
     R"(g (float[1,2,3,4] x) => (float[1,2,3,4] y) <float[2] k = {5,6}> {
          a = Transpose <perm = [0,2,3,1]> (x) b = Mul(a, k) y = Transpose <perm = [0,3,1,2]> (b) })",
     R"(g (float[1,2,3,4] x) => (float[1,2,3,4] y) <float[1,2,1,1] k = {5,6}> {
          a = Transpose <perm = [0,2,3,1]> (x) c = Mul(x, k) b = Transpose <perm = [0,2,3,1]> (c) y = Transpose <perm = [0,3,1,2]> (b) })"},
    {"two_transposed_operands", &kPushTransposes,
     R"(g (float[2,3] x, float[2,3] z) => (float[3,2] y) {
          a = Transpose <perm = [1,0]> (x) b = Transpose <perm = [1,0]> (z) y = Add(a, b) })",
     R"(g (float[2,3] x, float[2,3] z) => (float[3,2] y) {
          a = Transpose <perm = [1,0]> (x) b = Transpose <perm = [1,0]> (z) c = Add(x, z) y = Transpose <perm = [1,0]> (c) })"},
    {"transpose_that_meets_no_other", &kPushTransposes,
     "g (float[2,3] x) => (float[3,2] y) { a = Transpose <perm = [1,0]> (x) b = Relu(a) y = Abs(b) }",
     nullptr},
    {"operands_transposed_differently", &kPushTransposes,
     R"(g (float[2,2,2] x) => (float[2,2,2] y) {
          a = Transpose <perm = [1,0,2]> (x) b = Transpose <perm = [0,2,1]> (x) y = Add(a, b) })",
     nullptr},
    {"matrix_constant", &kPushTransposes,
     R"(g (float[2,2] x) => (float[2,2] y) <float[2,2] k = {5,6,7,8}> {
          a = Transpose <perm = [1,0]> (x) b = Mul(a, k) y = Transpose <perm = [1,0]> (b) })",
     nullptr},
    // --- fold_matmul_add, fold_transpose
    {"matmul_and_bias", &kFoldMatMulAdd,
     R"(g (float[N,2] x) => (float[N,3] y) <float[2,3] w = {1,2,3,4,5,6}, float[3] b = {1,2,3}> { a = MatMul(x, w) y = Add(b, a) })",
     R"(g (float[N,2] x) => (float[N,3] y) <float[2,3] w = {1,2,3,4,5,6}, float[3] b = {1,2,3}> { y = Gemm(x, w, b) })"},
    {"matmul_of_a_batch", &kFoldMatMulAdd,
     R"(g (float[N,4,2] x) => (float[N,4,3] y) <float[2,3] w = {1,2,3,4,5,6}, float[3] b = {1,2,3}> { a = MatMul(x, w) y = Add(a, b) })",
     nullptr},
    {"summand_that_widens", &kFoldMatMulAdd,  // [1, 3] + [2, 3] is [2, 3]
     R"(g (float[1,2] x, float[2,3] b) => (float[2,3] y) <float[2,3] w = {1,2,3,4,5,6}> { a = MatMul(x, w) y = Add(a, b) })",
     nullptr},
    {"summand_with_more_axes", &kFoldMatMulAdd,
     R"(g (float[1,2] x) => (float[1,1,3] y) <float[2,3] w = {1,2,3,4,5,6}, float[1,1,3] b = {1,2,3}> { a = MatMul(x, w) y = Add(a, b) })",
     nullptr},
    {"product_that_others_read", &kFoldMatMulAdd,
     R"(g (float[N,2] x) => (float[N,3] y, float[N,3] a) <float[2,3] w = {1,2,3,4,5,6}, float[3] b = {1,2,3}> {
          a = MatMul(x, w) y = Add(a, b) })",
     nullptr},
    {"integer_product", &kFoldMatMulAdd,
     R"(g (int32[2,2] x, int32[2] b) => (int32[2,2] y) { a = MatMul(x, x) y = Add(a, b) })", nullptr},
    {"gemm_of_a_transpose", &kFoldTranspose,
     R"(g (float[2,N] x) => (float[N,3] y) <float[2,3] w = {1,2,3,4,5,6}> { a = Transpose <perm = [1,0]> (x) y = Gemm(a, w) })",
     R"(g (float[2,N] x) => (float[N,3] y) <float[2,3] w = {1,2,3,4,5,6}> { a = Transpose <perm = [1,0]> (x) y = Gemm <transA = 1> (x, w) })"},
    {"gemm_that_transposed_already", &kFoldTranspose,
     R"(g (float[N,2] x, float[2,3] z) => (float[N,3] y) { a = Transpose <perm = [1,0]> (z) y = Gemm <transB = 1> (x, a) })",
     R"(g (float[N,2] x, float[2,3] z) => (float[N,3] y) { a = Transpose <perm = [1,0]> (z) y = Gemm <transB = 0> (x, z) })"},
    {"matmul_of_a_transpose", &kFoldTranspose,
     R"(g (float[2,N] x) => (float[N,3] y) <float[2,3] w = {1,2,3,4,5,6}> { a = Transpose <perm = [1,0]> (x) y = MatMul(a, w) })",
     nullptr},
    // --- fold_pad into pools
    {"pad_and_average", &kFoldPad,
     R"(g (float[1,1,4,4] x) => (float[1,1,3,3] y) <int64[8] p = {0,0,1,1,0,0,1,1}> {
          a = Pad(x, p) y = AveragePool <kernel_shape = [2,2], strides = [2,2]> (a) })",
     R"(g (float[1,1,4,4] x) => (float[1,1,3,3] y) <int64[8] p = {0,0,1,1,0,0,1,1}> {
          a = Pad(x, p) y = AveragePool <kernel_shape = [2,2], strides = [2,2], pads = [1,1,1,1], count_include_pad = 1> (x) })"},
    {"pad_and_average_that_leaves_its_own_pads_out", &kFoldPad,
     R"(g (float[1,1,4,4] x) => (float[1,1,4,4] y) <int64[8] p = {0,0,1,1,0,0,1,1}> {
          a = Pad(x, p) y = AveragePool <kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1]> (a) })",
     nullptr},
    {"pad_as_wide_as_the_window", &kFoldPad,
     R"(g (float[1,1,4,4] x) => (float[1,1,4,4] y) <int64[8] p = {0,0,2,2,0,0,2,2}> {
          a = Pad(x, p) y = AveragePool <kernel_shape = [2,2], strides = [2,2]> (a) })",
     nullptr},
    {"zeros_before_a_maximum_of_what_is_never_negative", &kFoldPad,
     R"(g (float[1,1,4,4] x) => (float[1,1,3,3] y) <int64[8] p = {0,0,1,1,0,0,1,1}> {
          r = Relu(x) a = Pad(r, p) y = MaxPool <kernel_shape = [2,2], strides = [2,2]> (a) })",
     R"(g (float[1,1,4,4] x) => (float[1,1,3,3] y) <int64[8] p = {0,0,1,1,0,0,1,1}> {
          r = Relu(x) a = Pad(r, p) y = MaxPool <kernel_shape = [2,2], strides = [2,2], pads = [1,1,1,1]> (r) })"},
    {"zeros_before_a_maximum_of_anything", &kFoldPad,
     R"(g (float[1,1,4,4] x) => (float[1,1,3,3] y) <int64[8] p = {0,0,1,1,0,0,1,1}> {
          a = Pad(x, p) y = MaxPool <kernel_shape = [2,2], strides = [2,2]> (a) })",
     nullptr},
    {"pad_by_axes", &kFoldPad,
     R"(g (float[1,1,4,4] x) => (float[1,1,4,6] y) <int64[2] p = {1,1}, float z = {0}, int64[1] ax = {-1}, float[1,1,1,1] w = {1}> {
          a = Pad(x, p, z, ax) y = Conv(a, w) })",
     R"(g (float[1,1,4,4] x) => (float[1,1,4,6] y) <int64[2] p = {1,1}, float z = {0}, int64[1] ax = {-1}, float[1,1,1,1] w = {1}> {
          a = Pad(x, p, z, ax) y = Conv <pads = [0,1,0,1]> (x, w) })"},
    {"pad_before_same_upper", &kFoldPad,
     R"(g (float[1,1,4,4] x) => (float[1,1,6,6] y) <int64[8] p = {0,0,1,1,0,0,1,1}, float[1,1,1,1] w = {1}> {
          a = Pad(x, p) y = Conv <auto_pad = "SAME_UPPER"> (a, w) })",
     nullptr},
    // --- unroll_loop
    {"loop_of_two_trips", &kUnrollLoop,
     R"(g (float[2] x) => (float[2] y, float[2,2] s) <int64 n = {2}, bool c = {1}> {
          y, s = Loop (n, c, x) <body = b (int64 i, bool k, float[2] v) => (bool k2, float[2] w, float[2] u) {
            k2 = Identity(k) w = Neg(v) u = Exp(v) }> })",
     R"(g (float[2] x) => (float[2] y, float[2,2] s) <bool t1 = {1}, bool t2 = {1}, int64[1] z = {0}> {
          k1 = Identity(t1) w1 = Neg(x) u1 = Exp(x)
          k2 = Identity(t2) w2 = Neg(w1) u2 = Exp(w1)
          p1 = Unsqueeze(u1, z) p2 = Unsqueeze(u2, z) q = Concat <axis = 0> (p1, p2)
          y = Identity(w2) s = Identity(q) })"},
    {"loop_of_no_trips", &kUnrollLoop,
     R"(g (float[2] x) => (float[2] y) <int64 n = {0}, bool c = {1}> {
          y = Loop (n, c, x) <body = b (int64 i, bool k, float[2] v) => (bool k2, float[2] w) { k2 = Identity(k) w = Neg(v) }> })",
     "g (float[2] x) => (float[2] y) { y = Identity(x) }"},
    {"loop_that_may_stop", &kUnrollLoop,
     R"(g (float x) => (float y) <int64 n = {2}, bool c = {1}, float z = {0}> {
          y = Loop (n, c, x) <body = b (int64 i, bool k, float v) => (bool k2, float w) { w = Neg(v) k2 = Less(w, z) }> })",
     nullptr},
    {"loop_of_many_trips", &kUnrollLoop,
     R"(g (float[2] x) => (float[2] y) <int64 n = {1000}, bool c = {1}> {
          y = Loop (n, c, x) <body = b (int64 i, bool k, float[2] v) => (bool k2, float[2] w) { k2 = Identity(k) w = Neg(v) }> })",
     nullptr},
    {"loop_of_computed_trips", &kUnrollLoop,
     R"(g (float[2] x, int64 n) => (float[2] y) <bool c = {1}> {
          y = Loop (n, c, x) <body = b (int64 i, bool k, float[2] v) => (bool k2, float[2] w) { k2 = Identity(k) w = Neg(v) }> })",
     nullptr},
    {"loop_whose_body_declares_another_shape", &kUnrollLoop,  // found by the fuzz target
     R"(g (float x) => (float[2] y) <int64 n = {3}, bool c = {1}> {
          y = Loop (n, c, x) <body = b (int64 i, bool k, float[2] v) => (bool k2, float[] w) { k2 = Identity(k) w = Add(v, x) }> })",
     nullptr},
    {"loop_of_no_trips_that_gives_another_shape", &kUnrollLoop,
     R"(g (float x) => (float[2] y) <int64 n = {0}, bool c = {1}> {
          y = Loop (n, c, x) <body = b (int64 i, bool k, float[] v) => (bool k2, float[2] w) <float[2] o = {1,2}> { k2 = Identity(k) w = Add(v, o) }> })",
     nullptr},
    {"branch_that_gives_another_shape", &kInlineIf,
     R"(g (float x) => (float[2] y) <bool c = {1}, float[2] o = {1,2}> {
          y = If (c) <then_branch = t () => (float a) { a = Relu(x) }, else_branch = e () => (float[2] b) { b = Abs(o) }> })",
     nullptr},
    // --- inline_if inside a branch, with captures of both scopes
    {"constant_condition_in_a_branch", &kInlineIf,
     R"(g (bool c, float[2] x) => (float[2] y) <bool yes = {1}> {
          y = If (c) <then_branch = t () => (float[2] p) {
                q = Relu(x)
                p = If (yes) <then_branch = u () => (float[2] r) { r = Add(q, x) }, else_branch = v () => (float[2] s) { s = Neg(q) }>
              }, else_branch = e () => (float[2] b) { b = Abs(x) }> })",
     R"(g (bool c, float[2] x) => (float[2] y) {
          y = If (c) <then_branch = t () => (float[2] p) { q = Relu(x) r = Add(q, x) p = Identity(r) },
                      else_branch = e () => (float[2] b) { b = Abs(x) }> })"},
    // --- remove_dead_code
    {"result_of_an_if_that_nobody_reads", &kRemoveDeadCode,
     R"(g (bool c, float[2] x) => (float[2] y) {
          y, z = If (c) <then_branch = t () => (float[2] p, float[2] q) { p = Relu(x) q = Exp(x) },
                         else_branch = e () => (float[2] r, float[2] s) { r = Abs(x) s = Log(x) }> })",
     R"(g (bool c, float[2] x) => (float[2] y) {
          y = If (c) <then_branch = t () => (float[2] p) { p = Relu(x) }, else_branch = e () => (float[2] r) { r = Abs(x) }> })"},
    // --- fold_shapes: the symbol stays open, the chain goes
    {"flatten_by_hand", &kFoldShapes,  // onnx/onnx#7445: no conflict of 0 against -1
     R"(g (float[N,C,4,4] x) => (float[N,K] y) <int64 i = {0}, int64[1] z = {0}, int64[1] m = {-1}> {
          s = Shape(x) d = Gather(s, i) u = Unsqueeze(d, z) t = Concat <axis = 0> (u, m) y = Reshape(x, t) })",
     R"(g (float[N,C,4,4] x) => (float[N,K] y) <int64 i = {0}, int64[1] z = {0}, int64[1] m = {-1}, int64[2] r = {0,-1}> {
          s = Shape(x) d = Gather(s, i) u = Unsqueeze(d, z) t = Concat <axis = 0> (u, m) y = Reshape(x, r) })"},
};

class MorePasses : public testing::TestWithParam<PassCase> {};
TEST_P(MorePasses, ReachesTheOtherGraph) { expect_pass(GetParam(), 21); }
INSTANTIATE_TEST_SUITE_P(Cases, MorePasses, testing::ValuesIn(kCases),
                         [](const auto& p) { return std::string(p.param.name); });

// --- recognition

constexpr const char* kLayerNorm =
    R"(g (float[N,4,%d] x) => (float[N,4,8] y) <int64[1] ax = {%a}, float two = {2}, float e = {0.00001},
    float[8] w = {1,2,3,4,5,6,7,8}, float[8] b = {8,7,6,5,4,3,2,1}> {
    m = ReduceMean(x, ax) d = Sub(x, m) p = Pow(d, two) v = ReduceMean(p, ax) s = Add(v, e) r = Sqrt(s)
    n = Div(d, r) k = Mul(n, w) y = Add(k, b) })";

std::string with(std::string text, const std::string& dim, const std::string& axis) {
  text.replace(text.find("%d"), 2, dim);
  text.replace(text.find("%a"), 2, axis);
  return text;
}

std::int64_t count(const Graph& graph, const char* op) {
  std::int64_t n = 0;
  for (const NodeId id : graph.nodes()) n += graph.node(id).is(op);
  return n;
}

Graph recognized(const std::string& text) {
  Graph graph = text_graph(21, text);
  run_passes(graph, all_passes(), {});
  return graph;
}

TEST(Recognize, LayerNormalization) {
  const Graph graph = recognized(with(kLayerNorm, "8", "-1"));
  ASSERT_EQ(graph.node_count(), 1u);
  const Node& node = graph.node(graph.nodes()[0]);
  EXPECT_TRUE(node.is("LayerNormalization"));
  EXPECT_EQ(node.attr("axis", std::int64_t{0}), -1);
  EXPECT_FLOAT_EQ(node.attr("epsilon", 0.0f), 1e-5f);
}

TEST(Recognize, NoLayerNormalizationOverAnotherAxis) {
  EXPECT_EQ(count(recognized(with(kLayerNorm, "8", "1")), "LayerNormalization"), 0);
}

TEST(Recognize, NoLayerNormalizationOfAnUnknownSize) {
  EXPECT_EQ(count(recognized(with(kLayerNorm, "K", "-1")), "LayerNormalization"), 0);
}

struct Spelling {
  const char* name;
  const char* op;
  const char* nodes;  // y from x
  bool matches;
};
void PrintTo(const Spelling& s, std::ostream* out) { *out << s.name; }

const Spelling kSpellings[] = {
    {"gelu_erf", "Gelu", "a = Div(x, r2) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half)", true},
    {"gelu_erf_half_first", "Gelu",
     "h = Mul(half, x) a = Mul(x, ir2) b = Erf(a) c = Add(one, b) y = Mul(h, c)", true},
    {"gelu_half_of_the_sum", "Gelu",
     "a = Mul(x, ir2) b = Erf(a) c = Add(one, b) h = Mul(half, c) y = Mul(x, h)", true},
    {"gelu_of_another_width", "Gelu",
     "a = Mul(x, half) b = Erf(a) c = Add(one, b) h = Mul(half, c) y = Mul(x, h)", false},
    {"gelu_of_two_values", "Gelu",
     "a = Mul(x, ir2) b = Erf(a) c = Add(one, b) h = Mul(half, c) y = Mul(z, h)", false},
    {"gelu_tanh", "Gelu",
     "c3 = Pow(x, three) t = Mul(c3, k) u = Add(x, t) v = Mul(u, r2pi) w = Tanh(v) o = Add(w, one) h = "
     "Mul(x, half) y = Mul(h, o)",
     true},
    {"gelu_tanh_by_products", "Gelu",
     "q = Mul(x, x) c3 = Mul(q, x) t = Mul(k, c3) u = Add(x, t) v = Mul(r2pi, u) w = Tanh(v) o = Add(one, w) "
     "p = Mul(x, o) y = Mul(half, p)",
     true},
    {"gelu_tanh_of_a_square", "Gelu",
     "c3 = Mul(x, x) t = Mul(c3, k) u = Add(x, t) v = Mul(u, r2pi) w = Tanh(v) o = Add(w, one) h = Mul(x, "
     "half) y = Mul(h, o)",
     false},
    {"swish", "Swish", "s = Sigmoid(x) y = Mul(s, x)", true},
    {"gate_of_another_value", "Swish", "s = Sigmoid(x) y = Mul(s, z)", false},
    {"hard_swish_by_clip", "HardSwish",
     "a = Add(x, three) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)", true},
    {"hard_swish_by_hard_sigmoid", "HardSwish",
     "h = HardSigmoid <alpha = 0.1666667, beta = 0.5> (x) y = Mul(x, h)", true},
    {"hard_sigmoid_of_another_slope", "HardSwish",
     "h = HardSigmoid <alpha = 0.2, beta = 0.5> (x) y = Mul(x, h)", false},
    {"clip_of_another_range", "HardSwish",
     "a = Add(x, three) c = Clip(a, zero, three) m = Mul(x, c) y = Div(m, six)", false},
    {"mish", "Mish", "s = Softplus(x) t = Tanh(s) y = Mul(x, t)", true},
    {"mish_by_log", "Mish", "ex = Exp(x) a = Add(ex, one) s = Log(a) t = Tanh(s) y = Mul(x, t)", true},
    {"tanh_of_another_softplus", "Mish", "s = Softplus(z) t = Tanh(s) y = Mul(x, t)", false},
    {"rms_normalization", "RMSNormalization",
     "q = Mul(x, x) m = ReduceMean(q, ax) s = Add(m, e) r = Sqrt(s) i = Reciprocal(r) n = Mul(x, i) y = "
     "Mul(g4, n)",
     true},
    {"rms_normalization_by_division", "RMSNormalization",
     "q = Pow(x, two) m = ReduceMean(q, ax) s = Add(e, m) r = Sqrt(s) n = Div(x, r) y = Mul(n, g4)", true},
    {"root_of_another_mean", "RMSNormalization",
     "q = Mul(z, z) m = ReduceMean(q, ax) s = Add(m, e) r = Sqrt(s) i = Reciprocal(r) n = Mul(x, i) y = "
     "Mul(g4, n)",
     false},
};

class Spellings : public testing::TestWithParam<Spelling> {};

TEST_P(Spellings, MakeTheOperatorOrAreLeftAlone) {
  const Spelling& s = GetParam();
  const std::string text = std::string(
                               "g (float[2,4] x, float[2,4] z) => (float[2,4] y) <float one = {1}, float two "
                               "= {2}, float three = {3}, ") +
                           "float six = {6}, float zero = {0}, float half = {0.5}, float r2 = {1.41421354}, "
                           "float ir2 = {0.70710677}, "
                           "float k = {0.044715}, float r2pi = {0.7978846}, float e = {0.00001}, int64[1] ax "
                           "= {-1}, float[4] g4 = {1,2,3,4}> { " +
                           s.nodes + " }";
  const Graph graph = recognized(text);
  EXPECT_EQ(count(graph, s.op), s.matches ? 1 : 0) << to_text(graph);
  if (s.matches) {
    EXPECT_EQ(graph.node_count(), 1u) << to_text(graph);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Spellings, testing::ValuesIn(kSpellings),
                         [](const auto& p) { return std::string(p.param.name); });

constexpr const char* kAttention =
    R"(g (float[N,2,5,4] q, float[N,2,5,4] k, float[N,2,5,4] v, float[N,1,1,5] m) => (float[N,2,5,4] y) <float s = {0.25}> {
    t = Transpose <perm = %p> (k) a = MatMul(q, t) b = Mul(a, s) c = Add(b, m) p = Softmax <axis = %x> (c) y = MatMul(p, v) })";

std::string attention(const std::string& perm, const std::string& axis) {
  std::string text = kAttention;
  text.replace(text.find("%p"), 2, perm);
  text.replace(text.find("%x"), 2, axis);
  return text;
}

TEST(Recognize, Attention) {
  const Graph graph = recognized(attention("[0,1,3,2]", "-1"));
  ASSERT_EQ(graph.node_count(), 2u) << to_text(graph);
  EXPECT_EQ(count(graph, "Expand"), 1) << "the mask of one row serves five queries";
  const Node& node = graph.node(graph.nodes()[1]);
  EXPECT_TRUE(node.is("Attention"));
  EXPECT_EQ(node.in.size(), 4u);
  EXPECT_FLOAT_EQ(node.attr("scale", 0.0f), 0.25f);
}

TEST(Recognize, NoAttentionAlongAnotherAxis) {
  EXPECT_EQ(count(recognized(attention("[0,1,3,2]", "1")), "Attention"), 0);
}

constexpr const char* kRotary =
    R"(g (float[N,2,2,4] x) => (float[N,2,2,4] y) <float[2,4] c = {1,0.5,1,%h,0.25,1,0.25,1}, float[2,4] s = {0,1,0,1,2,0,2,0},
    int64[1] z = {0}, int64[1] h = {2}, int64[1] e = {9}, int64[1] ax = {3}> {
    b = Slice(x, h, e, ax) a = Slice(x, z, h, ax) n = Neg(%n) r = Concat <axis = -1> (n, %a) p = Mul(x, c) q = Mul(r, s) y = Add(p, q) })";

std::string rotary(const char* half, const char* negated, const char* other) {
  std::string text = kRotary;
  text.replace(text.find("%h"), 2, half);
  text.replace(text.find("%n"), 2, negated);
  text.replace(text.find("%a"), 2, other);
  return text;
}

TEST(Recognize, RotaryEmbedding) {
  const Graph graph = recognized(rotary("0.5", "b", "a"));
  EXPECT_EQ(count(graph, "RotaryEmbedding"), 1) << to_text(graph);
  EXPECT_EQ(count(graph, "Concat"), 1) << "the shape of the tables, for any batch";
}

TEST(Recognize, NoRotaryEmbedding) {
  EXPECT_EQ(count(recognized(rotary("0.75", "b", "a")), "RotaryEmbedding"), 0)
      << "halves of the table differ";
  EXPECT_EQ(count(recognized(rotary("0.5", "b", "b")), "RotaryEmbedding"), 0) << "one half twice";
}

}  // namespace
}  // namespace pare
