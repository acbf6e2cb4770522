// Every pass: graphs that it changes, each beside the graph that it must reach, and graphs that it must leave
// alone. Positive cases compare the text of both graphs; negative ones the text before and after.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "engine/base/error.h"
#include "graphsurgeon/passes/passes.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare {
namespace {

struct Case {
  const char* name;
  const Pass* pass;
  const char* before;
  const char* after;  // nullptr: stays as it is
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    // --- fold_shapes
    {"shape_of_known_input", &kFoldShapes,
     "g (float[2,3] x) => (float[2] y) { s = Shape(x) y = Cast <to = 1> (s) }",
     "g (float[2,3] x) => (float[2] y) <int64[2] s = {2,3}> { y = Cast <to = 1> (s) }"},
    {"shape_with_start_and_end", &kFoldShapes,  // tsingmicro-toolchain/OnnxSlim#38
     "g (float[1,3,224,224] x) => (float[2] y) { s = Shape <start = 2, end = 4> (x) y = Cast <to = 1> (s) }",
     "g (float[1,3,224,224] x) => (float[2] y) <int64[2] s = {224,224}> { y = Cast <to = 1> (s) }"},
    {"shape_of_symbolic_input", &kFoldShapes,
     "g (float[N,3] x) => (int64[2] y) { s = Shape(x) y = Identity(s) }", nullptr},
    {"one_known_size_of_a_symbolic_shape", &kFoldShapes,
     "g (float[N,3] x) => (float y) <int64 i = {1}> { s = Shape(x) d = Gather(s, i) y = Cast <to = 1> (d) }",
     "g (float[N,3] x) => (float y) <int64 i = {1}, int64 d = {3}> { s = Shape(x) y = Cast <to = 1> (d) }"},
    {"reshape_that_keeps_the_batch", &kFoldShapes,
     R"(g (float[N,3,4] x) => (float[N,12] y) <int64[1] i = {0}, int64[1] k = {-1}> {
          s = Shape(x) d = Gather(s, i) t = Concat <axis = 0> (d, k) y = Reshape(x, t) })",
     R"(g (float[N,3,4] x) => (float[N,12] y) <int64[1] i = {0}, int64[1] k = {-1}, int64[2] r = {0,-1}> {
          s = Shape(x) d = Gather(s, i) t = Concat <axis = 0> (d, k) y = Reshape(x, r) })"},
    {"reshape_with_two_open_sizes", &kFoldShapes,
     R"(g (float[N,M] x, float[A,B] z) => (float[P,Q] y) { s = Shape(z) y = Reshape(x, s) })", nullptr},
    {"expand_over_the_batch_of_another", &kFoldShapes,
     R"(g (float[N,4] x, float[1,4] z) => (float[P,4] y) { s = Shape(x) y = Expand(z, s) })", nullptr},
    {"expand_to_the_own_shape", &kFoldShapes,
     R"(g (float[N,4] x) => (float[N,4] y) { s = Shape(x) y = Expand(x, s) })",
     R"(g (float[N,4] x) => (float[N,4] y) <int64[2] t = {1,4}> { s = Shape(x) y = Expand(x, t) })"},
    // --- fold_constants
    {"sum_of_constants", &kFoldConstants,
     "g (float[2] x) => (float[2] y) <float[2] a = {1,2}, float[2] b = {10,20}> { c = Add(a, b) y = Mul(x, "
     "c) }",
     "g (float[2] x) => (float[2] y) <float[2] c = {11,22}> { y = Mul(x, c) }"},
    {"comparison_without_old_shape_inference", &kFoldConstants,  // microsoft/onnxruntime#32130
     R"(g (float[2] x) => (float[2] y) <float[2] a = {1,2}, float[2] b = {2,2}> {
          c = GreaterOrEqual(a, b) y = Where(c, x, a) })",
     "g (float[2] x) => (float[2] y) <float[2] a = {1,2}, bool[2] c = {0,1}> { y = Where(c, x, a) }"},
    {"one_megabyte_out_of_nothing", &kFoldConstants,  // daquexian/onnx-simplifier#272
     R"(g (float[512,512] x) => (float[512,512] y) <int64[2] s = {512,512}> { c = ConstantOfShape(s) y = Add(x, c) })",
     nullptr},
    {"random", &kFoldConstants,
     "g (float[2] x) => (float[2] y) { r = RandomUniform <shape = [2]> () y = Add(x, r) }", nullptr},
    {"quantized_weight", &kFoldConstants,
     R"(g (float[1,2] x) => (float[1,2] y) <int8[2,2] w = {1,2,3,4}, float s = {0.5}> {
          d = DequantizeLinear(w, s) y = MatMul(x, d) })",
     nullptr},
    {"concat_with_an_empty_list", &kFoldConstants,  // onnx/onnx#6276
     R"(g (float[6] x) => (float[1,2,3] y) <int64[0] e = {}, int64[3] l = {1,2,3}> {
          s = Concat <axis = 0> (e, l) y = Reshape(x, s) })",
     "g (float[6] x) => (float[1,2,3] y) <int64[3] s = {1,2,3}> { y = Reshape(x, s) }"},
    {"rows_of_a_constant", &kFoldConstants,  // the kernel only points into its input
     R"(g (float[2] x) => (float[1,2] y) <float[3,2] w = {1,2,3,4,5,6}, int64[1] b = {1}, int64[1] e = {2}, int64[1] a = {0}> {
          s = Slice(w, b, e, a) y = Add(x, s) })",
     R"(g (float[2] x) => (float[1,2] y) <float[1,2] s = {3,4}> { y = Add(x, s) })"},
    // --- inline_if
    {"constant_condition", &kInlineIf,
     R"(g (float[2] x) => (float[2] z) <bool c = {1}> {
          y = If (c) <then_branch = t () => (float[2] a) { a = Relu(x) }, else_branch = e () => (float[2] b) { b = Abs(x) }>
          z = Neg(y) })",
     "g (float[2] x) => (float[2] z) { a = Relu(x) y = Identity(a) z = Neg(y) }"},
    {"branch_that_gives_a_constant", &kInlineIf,  // onnx/optimizer PR 314
     R"(g (float[2] x) => (float[2] z) <bool c = {0}> {
          y = If (c) <then_branch = t () => (float[2] a) { a = Relu(x) },
                      else_branch = e () => (float[2] b) <float[2] b = {3,4}> {}>
          z = Add(x, y) })",
     "g (float[2] x) => (float[2] z) <float[2] b = {3,4}> { y = Identity(b) z = Add(x, y) }"},
    {"computed_condition", &kInlineIf,
     R"(g (bool c, float[2] x) => (float[2] y) {
          y = If (c) <then_branch = t () => (float[2] a) { a = Relu(x) }, else_branch = e () => (float[2] b) { b = Abs(x) }> })",
     nullptr},
    // --- remove_identity
    {"identity", &kRemoveIdentity, "g (float[2] x) => (float[2] y) { a = Identity(x) y = Relu(a) }",
     "g (float[2] x) => (float[2] y) { y = Relu(x) }"},
    {"identity_at_the_output", &kRemoveIdentity,
     "g (float[2] x) => (float[2] y) { a = Relu(x) y = Identity(a) }",
     "g (float[2] x) => (float[2] y) { y = Relu(x) }"},
    {"identity_from_input_to_output", &kRemoveIdentity, "g (float[2] x) => (float[2] y) { y = Identity(x) }",
     nullptr},
    {"identity_between_two_outputs", &kRemoveIdentity,
     "g (float[2] x) => (float[2] y, float[2] z) { y = Relu(x) z = Identity(y) }", nullptr},
    {"dropout", &kRemoveIdentity, "g (float[2] x) => (float[2] y) { a = Dropout(x) y = Relu(a) }",
     "g (float[2] x) => (float[2] y) { y = Relu(x) }"},
    {"dropout_in_training", &kRemoveIdentity,
     "g (float[2] x) => (float[2] y) <float r = {0.5}, bool t = {1}> { a = Dropout(x, r, t) y = Relu(a) }",
     nullptr},
    {"cast_to_the_same", &kRemoveIdentity,
     "g (float[2] x) => (float[2] y) { a = Cast <to = 1> (x) y = Relu(a) }",
     "g (float[2] x) => (float[2] y) { y = Relu(x) }"},
    {"cast_to_another", &kRemoveIdentity,
     "g (float[2] x) => (double[2] y) { a = Cast <to = 11> (x) y = Relu(a) }", nullptr},
    {"reshape_to_the_same", &kRemoveIdentity,
     "g (float[2,3] x) => (float[2,3] y) <int64[2] s = {2,-1}> { a = Reshape(x, s) y = Relu(a) }",
     "g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }"},
    {"reshape_to_another", &kRemoveIdentity,
     "g (float[2,3] x) => (float[3,2] y) <int64[2] s = {3,2}> { a = Reshape(x, s) y = Relu(a) }", nullptr},
    {"transpose_that_moves", &kRemoveIdentity,
     "g (float[2,2] x) => (float[2,2] y) { a = Transpose <perm = [1,0]> (x) y = Relu(a) }", nullptr},
    {"whole_slice", &kRemoveIdentity,
     R"(g (float[4,5] x) => (float[4,5] y) <int64[1] s = {0}, int64[1] e = {9223372036854775807}, int64[1] a = {1}> {
          b = Slice(x, s, e, a) y = Relu(b) })",
     "g (float[4,5] x) => (float[4,5] y) { y = Relu(x) }"},
    {"reversing_slice", &kRemoveIdentity,
     R"(g (float[4] x) => (float[4] y) <int64[1] s = {-1}, int64[1] e = {-9223372036854775807}, int64[1] a = {0},
                                         int64[1] t = {-1}> { b = Slice(x, s, e, a, t) y = Relu(b) })",
     nullptr},
    {"slice_of_one_of_many", &kRemoveIdentity,  // onnx/onnx#2619
     R"(g (float[B,S,768] x) => (float[B,1,768] y) <int64[3] s = {0,0,0},
          int64[3] e = {2147483647,1,2147483647}, int64[3] a = {0,1,2}> { b = Slice(x, s, e, a) y = Relu(b) })",
     nullptr},
    {"times_one", &kRemoveIdentity,
     "g (float[2] x) => (float[2] y) <float o = {1}> { a = Mul(x, o) y = Relu(a) }",
     "g (float[2] x) => (float[2] y) { y = Relu(x) }"},
    {"times_one_that_broadcasts", &kRemoveIdentity,
     "g (float[1,2] x) => (float[3,2] y) <float[3,1] o = {1,1,1}> { a = Mul(x, o) y = Relu(a) }", nullptr},
    {"plus_zero_changes_minus_zero", &kRemoveIdentity,
     "g (float[2] x) => (float[2] y) <float o = {0}> { a = Add(x, o) y = Relu(a) }", nullptr},
    // --- fold_batch_normalization
    {"conv_and_batch_normalization", &kFoldBatchNormalization,
     R"(g (float[1,1,2,2] x) => (float[1,2,2,2] y) <float[2,1,1,1] w = {1,2}, float[2] g1 = {2,3}, float[2] b1 = {1,-1},
          float[2] m = {0.5,4}, float[2] v = {3,8}> {
          c = Conv(x, w) y = BatchNormalization <epsilon = 1.0> (c, g1, b1, m, v) })",
     R"(g (float[1,1,2,2] x) => (float[1,2,2,2] y) <float[2,1,1,1] w = {1,2}, float[2] b = {0.5,-5}> { y = Conv(x, w, b) })"},
    {"conv_with_bias", &kFoldBatchNormalization,
     R"(g (float[1,1,2,2] x) => (float[1,2,2,2] y) <float[2,1,1,1] w = {1,2}, float[2] b = {1,1}, float[2] g1 = {2,3},
          float[2] b1 = {1,-1}, float[2] m = {0.5,4}, float[2] v = {0,3}> {
          c = Conv(x, w, b) y = BatchNormalization <epsilon = 1.0> (c, g1, b1, m, v) })",
     R"(g (float[1,1,2,2] x) => (float[1,2,2,2] y) <float[2,1,1,1] w = {2,3}, float[2] b = {2,-5.5}> { y = Conv(x, w, b) })"},
    {"transposed_conv_in_groups",
     &kFoldBatchNormalization,  // [in 4, out per group 1]: inputs 0, 1 feed output 0
     R"(g (float[1,4,2,2] x) => (float[1,2,2,2] y) <float[4,1,1,1] w = {1,2,3,4}, float[2] g1 = {1,10}, float[2] b1 = {0,0},
          float[2] m = {0,0}, float[2] v = {0,0}> {
          c = ConvTranspose <group = 2> (x, w) y = BatchNormalization <epsilon = 1.0> (c, g1, b1, m, v) })",
     R"(g (float[1,4,2,2] x) => (float[1,2,2,2] y) <float[4,1,1,1] w = {1,2,30,40}, float[2] b = {0,0}> {
          y = ConvTranspose <group = 2> (x, w, b) })"},
    {"gemm", &kFoldBatchNormalization,
     R"(g (float[1,2] x) => (float[1,2] y) <float[2,2] w = {1,2,3,4}, float[2] c = {1,1}, float[2] g1 = {1,10},
          float[2] b1 = {0,5}, float[2] m = {0,0}, float[2] v = {0,0}> {
          a = Gemm <beta = 2.0> (x, w, c) y = BatchNormalization <epsilon = 1.0> (a, g1, b1, m, v) })",
     R"(g (float[1,2] x) => (float[1,2] y) <float[2,2] w = {1,20,3,40}, float[2] c = {2,25}> { y = Gemm(x, w, c) })"},
    {"conv_with_two_readers", &kFoldBatchNormalization,
     R"(g (float[1,1,2,2] x) => (float[1,1,2,2] y, float[1,1,2,2] z) <float[1,1,1,1] w = {1}, float[1] p = {1}> {
          c = Conv(x, w) y = BatchNormalization(c, p, p, p, p) z = Relu(c) })",
     nullptr},
    {"conv_that_is_an_output", &kFoldBatchNormalization,
     R"(g (float[1,1,2,2] x) => (float[1,1,2,2] y, float[1,1,2,2] c) <float[1,1,1,1] w = {1}, float[1] p = {1}> {
          c = Conv(x, w) y = BatchNormalization(c, p, p, p, p) })",
     nullptr},
    {"variance_that_folds_to_infinity", &kFoldBatchNormalization,
     R"(g (float[1,1,2,2] x) => (float[1,1,2,2] y) <float[1,1,1,1] w = {1}, float[1] p = {1}, float[1] v = {0}> {
          c = Conv(x, w) y = BatchNormalization <epsilon = 0.0> (c, p, p, p, v) })",
     nullptr},
    {"weight_that_is_computed", &kFoldBatchNormalization,
     R"(g (float[1,1,2,2] x, float[1,1,1,1] w) => (float[1,1,2,2] y) <float[1] p = {1}> {
          c = Conv(x, w) y = BatchNormalization(c, p, p, p, p) })",
     nullptr},
    // --- fold_channel_arithmetic
    {"scale_a_channel", &kFoldChannelArithmetic,
     R"(g (float[1,1,2,2] x) => (float[1,2,2,2] y) <float[2,1,1,1] w = {1,2}, float[2] b = {1,1}, float[2,1,1] s = {2,3}> {
          c = Conv(x, w, b) y = Mul(c, s) })",
     R"(g (float[1,1,2,2] x) => (float[1,2,2,2] y) <float[2,1,1,1] w = {2,6}, float[2] b = {2,3}> { y = Conv(x, w, b) })"},
    {"constant_minus_conv", &kFoldChannelArithmetic,
     R"(g (float[1,1,2,2] x) => (float[1,2,2,2] y) <float[2,1,1,1] w = {1,2}, float[2] b = {1,1}, float[1,2,1,1] s = {2,3}> {
          c = Conv(x, w, b) y = Sub(s, c) })",
     R"(g (float[1,1,2,2] x) => (float[1,2,2,2] y) <float[2,1,1,1] w = {-1,-2}, float[2] b = {1,2}> { y = Conv(x, w, b) })"},
    {"one_number_for_all", &kFoldChannelArithmetic,
     R"(g (float[1,1,2,2] x) => (float[1,1,2,2] y) <float[1,1,1,1] w = {4}, float s = {2}> { c = Conv(x, w) y = Div(c, s) })",
     R"(g (float[1,1,2,2] x) => (float[1,1,2,2] y) <float[1,1,1,1] w = {2}, float[1] b = {0}> { y = Conv(x, w, b) })"},
    {"factor_along_the_width", &kFoldChannelArithmetic,
     R"(g (float[1,1,2,2] x) => (float[1,2,2,2] y) <float[2,1,1,1] w = {1,2}, float[2] s = {2,3}> {
          c = Conv(x, w) y = Mul(c, s) })",
     nullptr},
    {"reciprocal_of_conv", &kFoldChannelArithmetic,
     "g (float[1,1,2,2] x) => (float[1,1,2,2] y) <float[1,1,1,1] w = {4}, float s = {2}> { c = Conv(x, w) y "
     "= Div(s, c) }",
     nullptr},
    // --- fold_pad
    {"pad_and_conv", &kFoldPad,
     R"(g (float[1,1,4,4] x) => (float[1,1,5,6] y) <int64[8] p = {0,0,1,1,0,0,0,1}, float[1,1,1,1] w = {1}> {
          a = Pad(x, p) y = Conv(a, w) })",
     R"(g (float[1,1,4,4] x) => (float[1,1,5,6] y) <int64[8] p = {0,0,1,1,0,0,0,1}, float[1,1,1,1] w = {1}> {
          a = Pad(x, p) y = Conv <pads = [1,1,0,1]> (x, w) })"},
    {"pad_with_ones", &kFoldPad,
     R"(g (float[1,1,4,4] x) => (float[1,1,5,6] y) <int64[8] p = {0,0,1,1,0,0,0,1}, float o = {1}, float[1,1,1,1] w = {1}> {
          a = Pad(x, p, o) y = Conv(a, w) })",
     nullptr},
    {"pad_by_reflection", &kFoldPad,
     R"(g (float[1,1,4,4] x) => (float[1,1,5,6] y) <int64[8] p = {0,0,1,1,0,0,0,1}, float[1,1,1,1] w = {1}> {
          a = Pad <mode = "reflect"> (x, p) y = Conv(a, w) })",
     nullptr},
    {"pad_of_channels", &kFoldPad,
     R"(g (float[1,1,4,4] x) => (float[1,1,4,4] y) <int64[8] p = {0,1,0,0,0,0,0,0}, float[1,2,1,1] w = {1,2}> {
          a = Pad(x, p) y = Conv(a, w) })",
     nullptr},
    {"pad_that_cuts", &kFoldPad,
     R"(g (float[1,1,4,4] x) => (float[1,1,3,4] y) <int64[8] p = {0,0,-1,0,0,0,0,0}, float[1,1,1,1] w = {1}> {
          a = Pad(x, p) y = Conv(a, w) })",
     nullptr},
    // --- merge_adjacent
    {"two_transposes", &kMergeAdjacent,
     R"(g (float[2,3,4] x) => (float[4,3,2] y) { a = Transpose <perm = [1,2,0]> (x) y = Transpose <perm = [1,0,2]> (a) })",
     R"(g (float[2,3,4] x) => (float[4,3,2] y) { a = Transpose <perm = [1,2,0]> (x) y = Transpose <perm = [2,1,0]> (x) })"},
    {"two_squeezes", &kMergeAdjacent,  // onnx/optimizer#35, #253
     R"(g (float[1,5000,1,1] x) => (float[1,5000] y) <int64[1] m = {-1}> { a = Squeeze(x, m) y = Squeeze(a, m) })",
     R"(g (float[1,5000,1,1] x) => (float[1,5000] y) <int64[1] m = {-1}, int64[2] n = {2,3}> {
          a = Squeeze(x, m) y = Squeeze(x, n) })"},
    {"two_unsqueezes", &kMergeAdjacent,
     R"(g (float[5] x) => (float[1,5,1] y) <int64[1] m = {0}, int64[1] k = {-1}> { a = Unsqueeze(x, m) y = Unsqueeze(a, k) })",
     R"(g (float[5] x) => (float[1,5,1] y) <int64[1] m = {0}, int64[2] n = {0,2}> { a = Unsqueeze(x, m) y = Unsqueeze(x, n) })"},
    {"squeeze_undoes_unsqueeze", &kMergeAdjacent,
     R"(g (float[5] x) => (float[5] y) <int64[1] m = {0}> { a = Unsqueeze(x, m) b = Squeeze(a, m) y = Relu(b) })",
     R"(g (float[5] x) => (float[5] y) <int64[1] m = {0}> { a = Unsqueeze(x, m) y = Relu(x) })"},
    {"reshape_after_flatten", &kMergeAdjacent,
     R"(g (float[2,3,4] x) => (float[4,6] y) <int64[2] s = {4,-1}> { a = Flatten(x) y = Reshape(a, s) })",
     R"(g (float[2,3,4] x) => (float[4,6] y) <int64[2] s = {4,-1}> { a = Flatten(x) y = Reshape(x, s) })"},
    {"reshape_that_copies_a_changed_size", &kMergeAdjacent,
     R"(g (float[2,3,4] x) => (float[6,4] y) <int64[2] t = {6,4}, int64[2] s = {0,-1}> { a = Reshape(x, t) y = Reshape(a, s) })",
     nullptr},
    {"two_casts", &kMergeAdjacent,
     R"(g (uint8[2] x) => (float[2] y) { a = Cast <to = 6> (x) y = Cast <to = 1> (a) })",
     R"(g (uint8[2] x) => (float[2] y) { a = Cast <to = 6> (x) y = Cast <to = 1> (x) })"},
    {"cast_that_rounds", &kMergeAdjacent,
     R"(g (float[2] x) => (float[2] y) { a = Cast <to = 7> (x) y = Cast <to = 1> (a) })", nullptr},
    {"cast_of_int32_through_float", &kMergeAdjacent,
     R"(g (int32[2] x) => (int64[2] y) { a = Cast <to = 1> (x) y = Cast <to = 7> (a) })", nullptr},
    // --- merge_constants
    {"equal_constants", &kMergeConstants,
     "g (float[2] x) => (float[2] y) <float[2] a = {1,2}, float[2] b = {1,2}> { c = Add(x, a) y = Mul(c, b) "
     "}",
     "g (float[2] x) => (float[2] y) <float[2] a = {1,2}> { c = Add(x, a) y = Mul(c, a) }"},
    {"constants_of_other_shape", &kMergeConstants,
     "g (float[2,2] x) => (float[2,2] y) <float[2] a = {1,2}, float[1,2] b = {1,2}> { c = Add(x, a) y = "
     "Mul(c, b) }",
     nullptr},
    {"zero_and_minus_zero", &kMergeConstants,
     "g (float[1] x) => (float[1] y) <float[1] a = {0}, float[1] b = {-0.0}> { c = Add(x, a) y = Div(c, b) }",
     nullptr},
    // --- merge_equal_nodes
    {"equal_nodes", &kMergeEqualNodes,
     "g (float[2] x) => (float[2] y) { a = Relu(x) b = Relu(x) y = Add(a, b) }",
     "g (float[2] x) => (float[2] y) { a = Relu(x) y = Add(a, a) }"},
    {"other_attributes", &kMergeEqualNodes,
     "g (float[2] x) => (float[2] y) { a = Elu <alpha = 1.0> (x) b = Elu <alpha = 2.0> (x) y = Add(a, b) }",
     nullptr},
    {"random_nodes", &kMergeEqualNodes,  // onnx common subexpression passes
     R"(g () => (float[2] y) { a = RandomUniform <shape = [2]> () b = RandomUniform <shape = [2]> () y = Sub(a, b) })",
     nullptr},
    {"operands_in_the_other_order", &kMergeEqualNodes,
     "g (float[2] x, float[2] z) => (float[2] y) { a = Add(x, z) b = Add(z, x) y = Mul(a, b) }",
     "g (float[2] x, float[2] z) => (float[2] y) { a = Add(x, z) y = Mul(a, a) }"},
    {"difference_in_the_other_order", &kMergeEqualNodes,
     "g (float[2] x, float[2] z) => (float[2] y) { a = Sub(x, z) b = Sub(z, x) y = Mul(a, b) }", nullptr},
    {"one_is_an_output", &kMergeEqualNodes,
     "g (float[2] x) => (float[2] y, float[2] z) { a = Relu(x) y = Relu(x) z = Neg(a) }",
     "g (float[2] x) => (float[2] y, float[2] z) { y = Relu(x) z = Neg(y) }"},
    {"nodes_with_subgraphs", &kMergeEqualNodes,
     R"(g (bool c, float[2] x) => (float[2] y) {
          a = If (c) <then_branch = t () => (float[2] p) { p = Relu(x) }, else_branch = e () => (float[2] q) { q = Abs(x) }>
          b = If (c) <then_branch = t () => (float[2] p) { p = Neg(x) }, else_branch = e () => (float[2] q) { q = Abs(x) }>
          y = Add(a, b) })",
     nullptr},
    {"both_are_outputs", &kMergeEqualNodes,
     "g (float[2] x) => (float[2] y, float[2] z) { y = Relu(x) z = Relu(x) }", nullptr},
    // --- remove_dead_code
    {"chain_that_nobody_reads", &kRemoveDeadCode,
     "g (float[2] x) => (float[2] y) { a = Relu(x) b = Neg(a) y = Abs(x) }",
     "g (float[2] x) => (float[2] y) { y = Abs(x) }"},
    {"everything_is_read", &kRemoveDeadCode, "g (float[2] x) => (float[2] y) { a = Relu(x) y = Abs(a) }",
     nullptr},
};

class Passes : public testing::TestWithParam<Case> {};

TEST_P(Passes, ReachesTheOtherGraph) {
  const Case& c = GetParam();
  Graph graph = text_graph(17, c.before);
  const std::string before = canonical_text(graph);
  const Pass* const list[] = {c.pass};
  RunPassesOptions options;
  const std::vector<PassReport> reports = run_passes(graph, list, options);
  if (c.after == nullptr) {
    EXPECT_EQ(canonical_text(graph), before);
    EXPECT_EQ(reports[0].changes, 0);
  } else {
    EXPECT_EQ(canonical_text(graph), canonical_text(text_graph(17, c.after)));
    EXPECT_GT(reports[0].changes, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Passes, testing::ValuesIn(kCases),
                         [](const auto& p) { return std::string(p.param.name); });

// The same word in another domain is another operator.
TEST(MergeEqualNodes, LooksAtTheDomain) {
  Graph graph = text_graph(17, "g (float[2] x) => (float[2] y) { a = Relu(x) b = Relu(x) y = Add(a, b) }");
  graph.node(graph.nodes()[1]).domain = "com.example";
  PassContext context;
  EXPECT_EQ(kMergeEqualNodes.run(graph, context), 0);
  graph.node(graph.nodes()[1]).domain = "";
  EXPECT_EQ(kMergeEqualNodes.run(graph, context), 1);
}

// MatMul(x, Transpose(W)): W is replaced, not stored twice (daquexian/onnx-simplifier#174).
TEST(FoldConstants, LargeWeightIsReplacedNotCopied) {
  const char* text = R"(g (float[1,2000] x) => (float[1,200] y) <float[200,2000] w = {%s}> {
      t = Transpose <perm = [1,0]> (w) y = MatMul(x, t) })";
  std::string values = "1";
  for (int i = 1; i < 400000; ++i) values += ",1";
  std::string whole(text);
  whole.replace(whole.find("%s"), 2, values);
  Graph graph = text_graph(17, whole);
  run_passes(graph, simplify_passes(), {});
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < graph.value_count(); ++i) {
    const Value& value = graph.value(static_cast<ValueId>(i));
    if (value.is_constant()) bytes += value.constant.bytes();
  }
  EXPECT_EQ(graph.node_count(), 1u);
  EXPECT_EQ(bytes, 400000 * 4);
}

TEST(RunPasses, WorksInsideBranches) {
  Graph graph = text_graph(17, R"(g (bool c, float[2] x) => (float[2] y) {
      y = If (c) <then_branch = t () => (float[2] a) { i = Identity(x) a = Relu(i) },
                  else_branch = e () => (float[2] b) { b = Abs(x) }> })");
  const Graph expected = text_graph(17, R"(g (bool c, float[2] x) => (float[2] y) {
      y = If (c) <then_branch = t () => (float[2] a) { a = Relu(x) }, else_branch = e () => (float[2] b) { b = Abs(x) }> })");
  const auto reports = run_passes(graph, simplify_passes(), {});
  EXPECT_EQ(canonical_text(graph), canonical_text(expected));
}

// What only a branch read is dead once the branch no longer reads it.
TEST(RemoveDeadCode, DropsCapturesThatNobodyReads) {
  Graph graph = text_graph(17, R"(g (bool c, float[2] x) => (float[2] y) {
      u = Exp(x)
      v = Neg(x)
      y = If (c) <then_branch = t () => (float[2] a) { dead = Relu(u) a = Relu(v) },
                  else_branch = e () => (float[2] b) { b = Abs(x) }> })");
  const Graph expected = text_graph(17, R"(g (bool c, float[2] x) => (float[2] y) {
      v = Neg(x)
      y = If (c) <then_branch = t () => (float[2] a) { a = Relu(v) }, else_branch = e () => (float[2] b) { b = Abs(x) }> })");
  const Pass* const list[] = {&kRemoveDeadCode};
  const auto reports = run_passes(graph, list, {});
  EXPECT_EQ(reports[0].changes, 3) << "Relu, a capture, Exp";
  // Captures are numbered in the order of the branches' names: else_branch's x, then then_branch's v.
  EXPECT_EQ(graph.node_count(), 2u);
  EXPECT_EQ(graph.node(graph.nodes()[1]).in.size(), 3u);
  EXPECT_EQ(canonical_text(graph), canonical_text(expected));
}

// A weight that is computed outside of the branches that use it becomes a constant of each, captured no more.
TEST(PullInConstants, BranchesOwnTheWeightsThatFoldOutside) {
  Graph graph =
      text_graph(17, R"(g (bool c, float[2] x) => (float[2] y) <float[2] a = {1,2}, float[2] b = {10,20}> {
      w = Add(a, b)
      y = If (c) <then_branch = t () => (float[2] p) { p = Mul(x, w) },
                  else_branch = e () => (float[2] q) { q = If (c) <then_branch = t2 () => (float[2] r) { r = Sub(x, w) },
                                                    else_branch = e2 () => (float[2] s) { s = Neg(x) }> }> })");
  const Graph expected = text_graph(17, R"(g (bool c, float[2] x) => (float[2] y) {
      y = If (c) <then_branch = t () => (float[2] p) <float[2] w = {11,22}> { p = Mul(x, w) },
                  else_branch = e () => (float[2] q) { q = If (c) <
                      then_branch = t2 () => (float[2] r) <float[2] w = {11,22}> { r = Sub(x, w) },
                      else_branch = e2 () => (float[2] s) { s = Neg(x) }> }> })");
  const auto reports = run_passes(graph, simplify_passes(), {});
  EXPECT_EQ(canonical_text(graph), canonical_text(expected));
}

TEST(RunPasses, LeavesOutWhatItIsTold) {
  Graph graph = text_graph(17, "g (float[2] x) => (float[2] y) { a = Identity(x) y = Relu(a) }");
  RunPassesOptions options;
  options.without = {"remove_identity"};
  const auto reports = run_passes(graph, simplify_passes(), options);
  EXPECT_EQ(graph.node_count(), 2u);
  EXPECT_EQ(reports.size(), simplify_passes().size() - 1);
}

TEST(RunPasses, SuggestsTheNameThatWasMeant) {
  Graph graph = text_graph(17, "g (float[2] x) => (float[2] y) { y = Relu(x) }");
  RunPassesOptions options;
  options.without = {"remove_identities"};
  try {
    run_passes(graph, simplify_passes(), options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_NE(error.hint().find("remove_identity"), std::string::npos) << error.hint();
  }
}

TEST(RunPasses, BlamesThePassThatBreaksTheGraph) {
  Graph graph = text_graph(17, "g (float[2] x) => (float[2] y) { a = Relu(x) y = Abs(a) }");
  const Pass breaker = {"breaker", "takes out a node that is needed", [](Graph& g, PassContext&) {
                          g.remove_node(g.nodes()[0]);
                          return 1;
                        }};
  const Pass* const list[] = {&breaker};
  try {
    run_passes(graph, list, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_NE(std::string(error.what()).find("'breaker'"), std::string::npos) << error.what();
  }
}

// 16 times the nodes: a linear pass takes some 16 to 40 times as long (caches), a quadratic one 256 times.
// Processor time, so that a busy machine does not count.
TEST(RunPasses, TimeIsLinear) {
  const auto seconds = [](int length) {
    std::string text = "g (float[2] x0) => (float[2] y) {";
    for (int i = 0; i < length; ++i)
      text += fmt::format(" a{0} = Identity(x{0}) b{0} = Relu(a{0}) c{0} = Relu(x{0}) x{1} = Add(b{0}, c{0})",
                          i, i + 1);
    Graph graph = text_graph(17, text + fmt::format(" y = Abs(x{}) }}", length));
    const std::clock_t start = std::clock();
    run_passes(graph, simplify_passes(), {});
    const double total = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_EQ(graph.node_count(), static_cast<std::size_t>(2 * length + 1));
    return total;
  };
  const double base = std::min({seconds(500), seconds(500), seconds(500)}), large = seconds(8000);
  EXPECT_LT(large, 100 * base) << base << " s for 2,000 nodes, " << large << " s for 32,000";
}

}  // namespace
}  // namespace pare
