// Every form of --export: the file is read back, passes the audit, and computes what the standard form does.
#include "recipes/export_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/base/error.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/ir/schema.h"
#include "engine/run/session.h"
#include "graphsurgeon/load.h"
#include "recipes/quant_spec.h"

namespace pare {
namespace {

constexpr std::int64_t kIn = 96, kMiddle = 64, kOut = 20;

Tensor normal(Dims dims, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(0.0f, 0.3f);
  std::vector<float> values(static_cast<std::size_t>(element_count(dims)));
  for (float& v : values) v = distribution(random);
  return Tensor::from(DType::kF32, std::move(dims), values);
}

// MatMul with [K, N] weights, Relu, Gemm with [N, K] weights and a bias.
Graph two_products() {
  Graph g;
  g.opset = 17;
  const auto value = [&](const char* name) {
    Value v;
    v.name = name;
    v.dtype = DType::kF32;
    return g.add_value(v);
  };
  Value x;
  x.name = "x";
  x.dtype = DType::kF32;
  x.shape = Shape({Dim::named("batch"), Dim::of(kIn)});
  g.inputs = {g.add_value(x)};
  const auto add = [&](const char* op, const char* out, std::vector<ValueId> in, Attributes attrs) {
    Node node;
    node.op = op;
    node.name = std::string("node_") + out;
    node.in = std::move(in);
    node.out = {value(out)};
    node.attrs = std::move(attrs);
    const ValueId result = node.out[0];
    g.add_node(std::move(node));
    return result;
  };
  const ValueId product =
      add("MatMul", "product", {g.inputs[0], g.add_constant("w1", normal({kIn, kMiddle}, 1))}, {});
  const ValueId relu = add("Relu", "relu", {product}, {});
  g.outputs = {
      add("Gemm", "y",
          {relu, g.add_constant("w2", normal({kOut, kMiddle}, 2)), g.add_constant("b2", normal({kOut}, 3))},
          {{"transB", std::int64_t{1}}})};
  infer_shapes(g);
  return g;
}

QuantizeOutcome quantized(const quant::Spec& spec) {
  QuantizeOutcome outcome;
  ThreadPool pool(1);
  outcome.source = two_products();
  outcome.plan.placement = quant::place(outcome.source, spec);
  outcome.plan.weights = quant::plan_weights(outcome.source, outcome.plan.placement, "rtn", pool);
  for (const quant::ActivationSite& site : outcome.plan.placement.activations)
    outcome.plan.activations.push_back(quant::activation_from_range(site.format, {-3, 3, "minmax"}));
  outcome.quantized = quant::apply(outcome.source, outcome.plan);
  return outcome;
}

std::vector<float> run(const std::string& path) {
  ThreadPool pool(1);
  Session session(lower_for_cpu(load_model(path)).graph, {&pool, true, false});
  const std::vector<Tensor> out = session.run({normal({3, kIn}, 4)});
  return {out[0].as<float>(), out[0].as<float>() + out[0].size()};
}

quant::Spec spec_of(const char* scheme, const char* target, std::int64_t group, bool zero_points) {
  QuantizeSpec recipe;
  recipe.scheme = scheme;
  recipe.target = target;
  recipe.group_size = group;
  if (zero_points) recipe.weights.symmetric = false;
  return quant_spec(recipe);
}

struct Row {
  const char *scheme, *target, *form;
  std::int64_t group;
  const char* op;  // that the file must hold
};

class ExportForms : public testing::TestWithParam<Row> {};

TEST_P(ExportForms, ReadBackComputesTheSame) {
  const Row& row = GetParam();
  const bool zeros = std::string(row.scheme) == "uint4";
  const QuantizeOutcome outcome = quantized(spec_of(row.scheme, row.target, row.group, zeros));
  ASSERT_GE(outcome.plan.weights.size(), 2u);
  const std::string folder = testing::TempDir();
  const std::string name = fmt::format("{}export_{}_{}_{}", folder, row.scheme, row.form, row.group);
  export_model(outcome, "qdq_onnx", name + "_qdq.onnx", {});
  const Exported exported = export_model(outcome, row.form, name + ".onnx", {});
  for (const std::string& note : exported.notes)
    EXPECT_EQ(note.find("is not written as"), std::string::npos) << note;
  const quant::AuditResult audit = audit_export(outcome, row.form, name + ".onnx");
  for (const quant::Mismatch& m : audit.mismatches) ADD_FAILURE() << m.tensor << ": " << m.what;
  const std::vector<float> got = run(name + ".onnx"), want = run(name + "_qdq.onnx");
  ASSERT_EQ(got.size(), want.size());
  // The same weights to the bit; a product may sum a transposed weight in another order: kIn terms of at most
  // 2 each, each sum off by half a unit in the last place of the whole.
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], static_cast<float>(kIn) * 2 * 0x1p-23f) << i;
  const std::string bytes = [&] {
    std::string all;
    std::FILE* file = std::fopen((name + ".onnx").c_str(), "rb");
    char buffer[4096];
    for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, file)) > 0;) all.append(buffer, n);
    std::fclose(file);
    return all;
  }();
  EXPECT_NE(bytes.find(row.op), std::string::npos);

  // A changed code is noticed.
  QuantizeOutcome tampered = outcome;
  Tensor codes = outcome.plan.weights[1].codes.clone();
  codes.mut<std::uint8_t>()[5] ^= 1;
  tampered.plan.weights[1].codes = codes;
  EXPECT_FALSE(audit_export(tampered, row.form, name + ".onnx").passed());
}

INSTANTIATE_TEST_SUITE_P(
    All, ExportForms,
    testing::Values(Row{"int4", "pare", "matmul_nbits", 0, "MatMulNBits"},
                    Row{"uint4", "pare", "matmul_nbits", 0, "MatMulNBits"},
                    Row{"int3", "pare", "matmul_nbits", 0, "MatMulNBits"},
                    Row{"int2", "pare", "matmul_nbits", 0, "MatMulNBits"},
                    Row{"int8_weights", "pare", "matmul_nbits", 0, "MatMulNBits"},
                    Row{"fp8", "tensorrt", "trt_onnx", 0, "TRT_FP8QuantizeLinear"},
                    Row{"int4", "tensorrt", "trt_onnx", 0, "TRT_INT4DequantizeLinear"},
                    Row{"nvfp4_w4a4", "tensorrt", "trt_onnx", 0, "TRT_FP4DynamicQuantize"},
                    Row{"mxfp8_w8a8", "tensorrt", "trt_onnx", 0, "TRT_MXFP8DynamicQuantize"}),
    [](const testing::TestParamInfo<Row>& row) {
      return fmt::format("{}_{}_{}", row.param.scheme, row.param.form, row.param.group);
    });

// Blocks of 8 are no block size of MatMulNBits: the layer stays Q/DQ, and a note says so.
TEST(ExportModel, WhatDoesNotFitIsRefusedOrSaid) {
  const QuantizeOutcome outcome = quantized(spec_of("int4", "pare", 8, false));
  const Exported exported =
      export_model(outcome, "matmul_nbits", testing::TempDir() + "export_blocks_of_8.onnx", {});
  ASSERT_FALSE(exported.notes.empty());
  EXPECT_NE(exported.notes[0].find("powers of two from 16 on"), std::string::npos) << exported.notes[0];
  const auto refused = [](const char* form, const char* scheme, const char* target) {
    try {
      check_export(form, spec_of(scheme, target, 0, false));
      return false;
    } catch (const Error&) {
      return true;
    }
  };
  EXPECT_TRUE(refused("matmul_nbits", "int8", "pare"));
  EXPECT_TRUE(refused("matmul_nbits", "nvfp4", "pare"));
  EXPECT_TRUE(refused("trt_onnx", "fp8", "pare"));
  EXPECT_TRUE(refused("qoperator", "int8", "pare"));
  EXPECT_TRUE(refused("trt_cache", "uint8", "pare"));
  EXPECT_TRUE(refused("gguf", "int8", "pare"));
  EXPECT_FALSE(refused("qoperator", "int8", "onnxruntime"));
}

}  // namespace
}  // namespace pare
