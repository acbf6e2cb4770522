// Numbers and graph edits: scales by the book, codes from the written scale, names kept.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "engine/base/error.h"
#include "engine/numeric/e4m3.h"
#include "engine/run/evaluate.h"
#include "quant/audit.h"
#include "quant/plan.h"
#include "tests/unit/quant/build_graph.h"

namespace pare::quant {
namespace {

Format int8() { return {DType::kI8, Granularity::kTensor, 0, true}; }
Format uint8() { return {DType::kU8, Granularity::kTensor, 0, false}; }
Format fp8() { return {DType::kE4M3FN, Granularity::kTensor, 0, true}; }

TEST(ActivationFromRange, ScalesByTheBook) {
  EXPECT_FLOAT_EQ(activation_from_range(int8(), {-1, 2, ""}).scale, 2.0f / 127);
  // Only the negative side: the magnitude counts, not the higher end.
  EXPECT_FLOAT_EQ(activation_from_range(int8(), {-3, -1, ""}).scale, 3.0f / 127);
  // The largest magnitude lands on the largest code, 448, not on 36.
  const ActivationPlan e4m3 = activation_from_range(fp8(), {-1, 1, ""});
  EXPECT_EQ(e4m3.scale, 1.0f / 448);
  EXPECT_EQ(encode_e4m3(1.0f / e4m3.scale), 0x7E);
}

TEST(ActivationFromRange, AsymmetricRangesHoldZeroExactly) {
  const ActivationPlan plan = activation_from_range(uint8(), {1, 3, ""});
  EXPECT_FLOAT_EQ(plan.scale, 3.0f / 255);
  EXPECT_EQ(plan.zero_point, 0);
  const ActivationPlan negative = activation_from_range(uint8(), {-3, -1, ""});
  EXPECT_EQ(negative.zero_point, 255);
  const ActivationPlan both = activation_from_range(uint8(), {-1, 3, ""});
  EXPECT_EQ(both.zero_point, 64);  // 1 / (4/255) = 63.75
}

TEST(ActivationFromRange, EmptyAndTinyRangesGetScaleOne) {
  EXPECT_EQ(activation_from_range(int8(), {0, 0, ""}).scale, 1.0f);
  EXPECT_EQ(activation_from_range(int8(), {0, 1e-40, ""}).scale, 1.0f);
}

TEST(ActivationFromRange, RefusesWhatIsNoRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (const ChosenRange& range : {ChosenRange{nan, 1, ""}, ChosenRange{-1, inf, ""}, ChosenRange{2, 1, ""}})
    EXPECT_THROW(activation_from_range(int8(), range), Error);
}

Plan plan_for(const Graph& graph, const Spec& spec, ThreadPool& pool) {
  Plan plan;
  plan.placement = place(graph, spec);
  for (const ActivationSite& site : plan.placement.activations)
    plan.activations.push_back(activation_from_range(site.format, {-1, 1, "minmax"}));
  plan.weights = plan_weights(graph, plan.placement, spec.method, pool);
  return plan;
}

TEST(Apply, EveryTargetVerifiesAndKeepsTheGraphsFace) {
  const Graph graph = test::residual_block();
  ThreadPool pool(1);
  for (const Target target : {Target::kPare, Target::kTensorRT, Target::kOnnxRuntime}) {
    Spec spec;
    spec.target = target;
    const Graph quantized = apply(graph, plan_for(graph, spec, pool));
    ASSERT_EQ(quantized.outputs.size(), 1u);
    EXPECT_EQ(quantized.value(quantized.outputs[0]).name, "y");
    EXPECT_EQ(quantized.value(quantized.inputs[0]).name, "x");
    for (const NodeId id : quantized.nodes()) {
      const Node& node = quantized.node(id);
      if (!node.is("Conv") && !node.is("Gemm")) continue;
      for (int slot = 0; slot < 2; ++slot) {
        const NodeId producer = quantized.producer(node.in[static_cast<std::size_t>(slot)]);
        ASSERT_NE(producer, NodeId::kNone) << name(target) << " " << node.name;
        EXPECT_EQ(quantized.node(producer).op, "DequantizeLinear");
      }
    }
  }
}

TEST(Apply, IntegerBiasHasTheScaleOfTheProductAndItsValue) {
  const Graph graph = test::residual_block();
  ThreadPool pool(1);
  Spec spec;
  spec.target = Target::kOnnxRuntime;
  const Graph q = apply(graph, plan_for(graph, spec, pool));
  const ValueId codes = q.find_value("b1_quantized"), scale = q.find_value("b1_scale"),
                w = q.find_value("w1_scale");
  ASSERT_NE(codes, ValueId::kNone);
  const float* b = graph.value(graph.find_value("b1")).constant.as<float>();
  for (std::size_t i = 0; i < 16; ++i) {
    const float s = q.value(scale).constant.as<float>()[i];
    EXPECT_EQ(s, (1.0f / 127) * q.value(w).constant.as<float>()[i]);
    // Rounding to a code moves a value by at most half a scale.
    EXPECT_LE(std::fabs(static_cast<double>(q.value(codes).constant.as<std::int32_t>()[i]) *
                            static_cast<double>(s) -
                        static_cast<double>(b[i])),
              static_cast<double>(s) * 0.5000001);
  }
}

TEST(Weights, SearchIsNeverWorseThanTheLargestMagnitude) {
  const Graph graph = test::residual_block();
  ThreadPool pool(1), two(2);
  for (const char* scheme : {"int8", "fp8"}) {
    const Placement placement = test::placement_in(graph, Target::kPare, scheme);
    ASSERT_EQ(placement.weights.size(), 4u);
    const std::vector<WeightPlan> plain = plan_weights(graph, placement, "rtn", pool);
    const std::vector<WeightPlan> searched = plan_weights(graph, placement, "search", pool);
    const std::vector<WeightPlan> threaded = plan_weights(graph, placement, "search", two);
    for (std::size_t i = 0; i < plain.size(); ++i) {
      EXPECT_LT(searched[i].mse, plain[i].mse) << scheme << " " << i;
      EXPECT_TRUE(equal_bytes(searched[i].codes, threaded[i].codes));
      EXPECT_TRUE(equal_bytes(searched[i].scales, threaded[i].scales));
    }
  }
}

TEST(Weights, CodesComeFromTheWrittenScale) {
  const Graph graph = test::residual_block();
  ThreadPool pool(1);
  Spec spec;
  const Placement placement = place(graph, spec);
  const std::vector<WeightPlan> plans = plan_weights(graph, placement, "search", pool);
  const WeightPlan& w1 = plans[0];
  const float* w = graph.value(placement.weights[0].value).constant.as<float>();
  for (std::int64_t i = 0; i < w1.codes.size(); ++i) {
    const float s = w1.scales.as<float>()[i / (8 * 9)];
    const float want = std::min(127.0f, std::max(-128.0f, std::nearbyintf(w[i] / s)));
    ASSERT_EQ(static_cast<float>(w1.codes.as<std::int8_t>()[i]), want) << i;
  }
}

// What stands in the graph for every format: types, dims, attributes; the audit finds each again.
TEST(Weights, EveryFormatIsStandardQdq) {
  struct Row {
    const char* format;
    DType codes, scales, zeros;
    std::int64_t block;  // of conv2, with 16 inputs
    Dims scale_dims;
    bool two_levels;
  };
  const Row rows[] = {
      {"int8", DType::kI8, DType::kF32, DType::kI8, 0, {16}, false},
      {"uint8", DType::kU8, DType::kF32, DType::kU8, 0, {16}, false},
      {"int4", DType::kI4, DType::kF32, DType::kUndefined, 16, {16, 1, 3, 3}, false},
      {"uint4", DType::kU4, DType::kF32, DType::kU4, 16, {16, 1, 3, 3}, false},
      {"int3", DType::kI4, DType::kF32, DType::kUndefined, 16, {16, 1, 3, 3}, false},
      {"int2", DType::kI2, DType::kF32, DType::kUndefined, 16, {16, 1, 3, 3}, false},
      {"fp8_e5m2", DType::kE5M2, DType::kF32, DType::kE5M2, 0, {16}, false},
      {"nvfp4", DType::kE2M1, DType::kE4M3FN, DType::kUndefined, 16, {16, 1, 3, 3}, true},
      {"mxfp4", DType::kE2M1, DType::kE8M0, DType::kUndefined, 32, {16, 1, 3, 3}, false},
      {"mxfp8", DType::kE4M3FN, DType::kE8M0, DType::kUndefined, 32, {16, 1, 3, 3}, false},
  };
  const Graph graph = test::residual_block();
  ThreadPool pool(1);
  for (const Row& row : rows) {
    SCOPED_TRACE(row.format);
    Plan plan;
    plan.placement = test::placement_in(graph, Target::kPare, "int8");
    plan.placement.activations.clear();
    plan.placement.biases.clear();
    for (WeightSite& site : plan.placement.weights) {
      const Dims& dims = graph.value(site.value).constant.dims();
      const std::int64_t ins = dims[static_cast<std::size_t>(site.reduce_axis)];
      site.format =
          fit_block(weight_format(row.format), ins,
                    element_count(dims) / ins / dims[static_cast<std::size_t>(site.axis)], Target::kPare);
    }
    plan.weights = plan_weights(graph, plan.placement, "rtn", pool);
    const Graph written = apply(graph, plan);
    const AuditResult result = audit(graph, plan, written);
    for (const Mismatch& m : result.mismatches) ADD_FAILURE() << m.tensor << ": " << m.what;
    const Node* dq = nullptr;
    for (const NodeId id : written.nodes())
      if (written.node(id).name == "w2_DequantizeLinear") dq = &written.node(id);
    ASSERT_NE(dq, nullptr);
    EXPECT_EQ(written.value(dq->in[0]).dtype, row.codes);
    EXPECT_EQ(written.value(dq->in[0]).constant.dims(), (Dims{16, 16, 3, 3}));
    EXPECT_EQ(dq->attr("block_size", std::int64_t{0}), row.block);
    EXPECT_EQ(dq->attr("axis", std::int64_t{1}), row.block > 0 ? 1 : 0);
    EXPECT_EQ(dq->in.size() > 2 ? written.value(dq->in[2]).dtype : DType::kUndefined, row.zeros);
    ValueId scale = dq->in[1];
    EXPECT_EQ(written.is_constant(scale), !row.two_levels);
    if (row.two_levels) scale = written.node(written.producer(scale)).in[0];
    EXPECT_EQ(written.value(scale).dtype, row.scales);
    EXPECT_EQ(written.value(scale).constant.dims(), row.scale_dims);
    // What the graph's own kernels make of it is what the plan says.
    for (std::size_t i = 0; i < plan.weights.size(); ++i) {
      const WeightSite& site = plan.placement.weights[i];
      const NodeId reader =
          written.producer(written.find_value(graph.value(graph.node(site.uses[0].node).out[0]).name));
      const Node& last = written.node(written.producer(written.node(reader).in[1]));
      Node one = last;
      Graph copy = written;
      if (row.two_levels) {
        const NodeId first = copy.producer(one.in[1]);
        one.in[1] = copy.add_constant("scales", evaluate_constant_node(copy, copy.node(first))[0]);
      }
      EXPECT_TRUE(equal_bytes(evaluate_constant_node(copy, one)[0], dequantized(site, plan.weights[i])));
    }
  }
}

// Every row of the table can be used, and is another one.
TEST(Schemes, AllArePossible) {
  std::set<std::string> names;
  for (const Scheme& scheme : schemes()) {
    Spec spec;
    spec.weights = scheme.weights;
    spec.activations = scheme.activations;
    EXPECT_NO_THROW(check(spec)) << scheme.name;
    EXPECT_TRUE(names.insert(scheme.name).second) << scheme.name;
    EXPECT_TRUE(spec.weights.active()) << scheme.name;
  }
  Spec mixed;
  mixed.weights = weight_format("int8");
  mixed.activations = activation_format("fp8");
  EXPECT_THROW(check(mixed), Error) << "no kernel multiplies INT8 by FP8";
  EXPECT_THROW(weight_format("int7"), Error);
  EXPECT_THROW(activation_format("int3"), Error);
}

// The largest dividing group is offered; a default one steps down by itself.
TEST(FitBlock, GroupsThatDoNotDivide) {
  Format int4 = weight_format("int4");
  EXPECT_EQ(fit_block(int4, 256, 1, Target::kPare).block, 128);
  EXPECT_EQ(fit_block(int4, 8256, 1, Target::kPare).block, 64);
  EXPECT_EQ(fit_block(int4, 100, 1, Target::kPare).block, 100) << "a group larger than the row is the row";
  EXPECT_EQ(fit_block(int4, 3, 9, Target::kPare).granularity, Granularity::kChannel);
  EXPECT_EQ(fit_block(int4, 129, 1, Target::kPare).block, 128) << "a short last block";
  EXPECT_THROW(fit_block(int4, 129, 1, Target::kTensorRT), Error);
  EXPECT_EQ(fit_block(weight_format("nvfp4"), 40, 1, Target::kPare).block, 16);
  EXPECT_THROW(fit_block(weight_format("nvfp4"), 40, 1, Target::kTensorRT), Error);
  int4.asked = true;
  try {
    fit_block(int4, 8256, 1, Target::kPare);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a group of 128 does not divide its 8256 inputs");
    EXPECT_EQ(error.hint(), "96 is the largest that does, 64 the largest power of two");
  }
}

}  // namespace
}  // namespace pare::quant
