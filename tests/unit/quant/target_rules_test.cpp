// What each target refuses, before any work.
#include "quant/placement/target_rules.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "quant/placement/placement.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare::quant {
namespace {

constexpr Granularity kTensor = Granularity::kTensor, kChannel = Granularity::kChannel,
                      kBlock = Granularity::kBlock;

struct Row {
  const char* what;
  Format format;
  Role role;
  bool tensorrt, onnxruntime;
};

TEST(TargetRules, OneRowAFormat) {
  const Row rows[] = {
      {"int8 weights a channel", {DType::kI8, kChannel, 0, true}, Role::kWeight, true, true},
      {"int8 activations", {DType::kI8, kTensor, 0, true}, Role::kActivation, true, true},
      {"int8 activations a channel", {DType::kI8, kChannel, 0, true}, Role::kActivation, false, false},
      {"uint8 activations", {DType::kU8, kTensor, 0, false}, Role::kActivation, false, true},
      {"int8 weights with zero points", {DType::kI8, kChannel, 0, false}, Role::kWeight, false, true},
      {"int8 blocks", {DType::kI8, kBlock, 32, true}, Role::kWeight, false, true},
      {"int16 activations", {DType::kI16, kTensor, 0, true}, Role::kActivation, false, true},
      {"int4 blocks", {DType::kI4, kBlock, 128, true}, Role::kWeight, true, true},
      {"uint4 blocks", {DType::kU4, kBlock, 128, false}, Role::kWeight, false, true},
      {"int4 a channel", {DType::kI4, kChannel, 0, true}, Role::kWeight, false, true},
      {"int4 activations", {DType::kI4, kTensor, 0, true}, Role::kActivation, false, true},
      {"E4M3 activations", {DType::kE4M3FN, kTensor, 0, true}, Role::kActivation, true, true},
      {"E5M2 weights", {DType::kE5M2, kChannel, 0, true}, Role::kWeight, false, true},
      {"fp4 blocks", {DType::kE2M1, kBlock, 16, true}, Role::kWeight, true, false},
      {"left alone", {}, Role::kWeight, true, true},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(why_target_refuses(Target::kTensorRT, row.format, row.role).empty(), row.tensorrt) << row.what;
    EXPECT_EQ(why_target_refuses(Target::kOnnxRuntime, row.format, row.role).empty(), row.onnxruntime)
        << row.what;
    EXPECT_EQ(why_target_refuses(Target::kPare, row.format, row.role), "") << row.what;
  }
  EXPECT_FALSE(takes_negative_scales(Target::kTensorRT));
  EXPECT_TRUE(takes_negative_scales(Target::kOnnxRuntime));
}

TEST(TargetRules, TheErrorNamesTheRuleAndOffersATarget) {
  Spec spec;
  spec.target = Target::kTensorRT;
  Rule rule;
  rule.activations = Format{DType::kU8, kTensor, 0, false};
  spec.rules.push_back(rule);
  try {
    check_target(spec);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_STREQ(
        error.what(),
        "target tensorrt cannot hold activations in uint8, per tensor, asymmetric: TensorRT has no zero "
        "points");
    EXPECT_EQ(error.where(), "quantize.rules[0]");
    EXPECT_EQ(error.hint(), "choose another format, or target: onnxruntime or pare");
  }
}

// The model's own Q/DQ.
TEST(TargetRules, ModelsThatTensorRTWouldRefuse) {
  struct Case {
    const char *scale, *zero, *complaint;
  };
  for (const Case& c : {Case{"{-0.5}", "{0}", "scales above zero"}, Case{"{0}", "{0}", "scales above zero"},
                        Case{"{0.5}", "{3}", "no zero points"}, Case{"{0.5}", "{0}", ""}}) {
    const std::string body = std::string("<float s = ") + c.scale + ", int8 z = " + c.zero +
                             "> { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }";
    const Graph plain = text_graph(21, "g (float[2] x) => (float[2] y) " + body);
    const Graph inside = text_graph(
        21, std::string(
                "g (bool c, float[2] x) => (float[2] r) { r = If (c) <then_branch = t () => (float[2] y) ") +
                body + ", else_branch = e () => (float[2] w) { w = Identity(x) }> }");
    for (const Graph* graph : {&plain, &inside}) {
      Spec spec;
      EXPECT_NO_THROW(place(*graph, spec)) << "target pare runs it";
      spec.target = Target::kTensorRT;
      if (c.complaint[0] == '\0') {
        EXPECT_NO_THROW(place(*graph, spec));
        continue;
      }
      try {
        place(*graph, spec);
        ADD_FAILURE() << c.scale << c.zero;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
        EXPECT_NE(std::string(error.what()).find(c.complaint), std::string::npos) << error.what();
        EXPECT_NE(error.where().find(graph == &plain ? "q" : "r.then_branch/q"), std::string::npos)
            << error.where();
      }
    }
  }
  const Graph channels = text_graph(21,
                                    "g (float[2,3] x) => (float[2,3] y) <float[3] s = {1,2,3}, int8[3] z = "
                                    "{0,0,0}> { q = QuantizeLinear <axis "
                                    "= 1> (x, s, z) y = DequantizeLinear <axis = 1> (q, s, z) }");
  Spec spec;
  spec.target = Target::kTensorRT;
  EXPECT_THROW(place(channels, spec), Error);
}

}  // namespace
}  // namespace pare::quant
