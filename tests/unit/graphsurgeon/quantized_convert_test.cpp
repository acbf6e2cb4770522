// Quantized checkpoints from one tool's format to another's: what is exact keeps every weight, the rest is
// refused with layer and reason. The files are those that the peers' code packed (tests/golden/quantized).
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"
#include "engine/base/thread_pool.h"
#include "graphsurgeon/families/family.h"
#include "graphsurgeon/forms/convert_quantized.h"
#include "graphsurgeon/open_checkpoint.h"
#include "tests/unit/test_paths.h"

namespace pare {
namespace {

// Codes without zero points, in float16 numbers; with zero points; a group order; floats.
const std::map<std::string, std::set<Dialect>> kExact = {
    {"awq", {Dialect::kAutoAwq, Dialect::kGptqV2, Dialect::kGptq, Dialect::kCompressedTensors}},
    {"awq_sym",
     {Dialect::kAutoAwq, Dialect::kGptqV2, Dialect::kGptq, Dialect::kCompressedTensors, Dialect::kModelOpt}},
    {"gptq",
     {Dialect::kAutoAwq, Dialect::kGptqV2, Dialect::kGptq, Dialect::kCompressedTensors, Dialect::kModelOpt}},
    {"gptq_v2",
     {Dialect::kAutoAwq, Dialect::kGptqV2, Dialect::kGptq, Dialect::kCompressedTensors, Dialect::kModelOpt}},
    {"gptq_asym", {Dialect::kAutoAwq, Dialect::kGptqV2, Dialect::kGptq, Dialect::kCompressedTensors}},
    {"gptq_actorder", {Dialect::kGptqV2, Dialect::kGptq}},
    {"gptq_3bit", {Dialect::kGptqV2, Dialect::kGptq, Dialect::kCompressedTensors}},
    {"ct_w4a16",
     {Dialect::kAutoAwq, Dialect::kGptqV2, Dialect::kGptq, Dialect::kCompressedTensors, Dialect::kModelOpt}},
    {"ct_w8a8", {Dialect::kCompressedTensors}},
    {"ct_fp8", {Dialect::kCompressedTensors, Dialect::kModelOpt}},
    {"ct_fp8_dynamic", {Dialect::kCompressedTensors, Dialect::kModelOpt}},
    {"ct_mxfp4", {Dialect::kCompressedTensors}},
    {"ct_mxfp8", {Dialect::kCompressedTensors}},
    {"mo_fp8", {Dialect::kCompressedTensors, Dialect::kModelOpt}},
    {"mo_w4a16_awq", {Dialect::kModelOpt}},
    {"fp8_block", {Dialect::kCompressedTensors}},
};
constexpr Dialect kFolders[] = {Dialect::kCompressedTensors, Dialect::kAutoAwq, Dialect::kGptq,
                                Dialect::kGptqV2, Dialect::kModelOpt};

class Conversion : public testing::TestWithParam<std::string> {};

TEST_P(Conversion, KeepsEveryWeightOrIsRefused) {
  ThreadPool pool(1);
  const Checkpoint from = open_checkpoint(source_path("tests/golden/quantized/" + GetParam()));
  const std::string folder = make_temporary_directory();
  for (const Dialect dialect : kFolders) {
    SCOPED_TRACE(name(dialect));
    const std::string out = join_path(folder, name(dialect));
    if (kExact.at(GetParam()).count(dialect) == 0) {
      try {
        convert_quantized(from, dialect, out, pool);
        ADD_FAILURE() << "not refused";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
        EXPECT_NE((error.what() + error.where()).find("model.layers.0."), std::string::npos) << error.what();
      }
      EXPECT_FALSE(path_exists(join_path(out, "config.json")));
      continue;
    }
    const ConvertedCheckpoint done = convert_quantized(from, dialect, out, pool);
    EXPECT_EQ(done.layers, 7);
    const Checkpoint to = open_checkpoint(out);
    const QuantizedModel &a = from.quantized->model(), &b = to.quantized->model();
    ASSERT_EQ(a.layers.size(), b.layers.size());
    EXPECT_EQ(a.kv_cache, b.kv_cache);
    for (std::size_t i = 0; i < a.layers.size(); ++i) {
      const std::string weight = a.layers[i].module + ".weight";
      const Tensor want = from.weights->get(weight), got = to.weights->get(weight);
      ASSERT_EQ(want.dims(), got.dims());
      EXPECT_TRUE(std::equal(want.as<float>(), want.as<float>() + want.size(), got.as<float>())) << weight;
      EXPECT_EQ(to_string(a.layers[i].inputs), to_string(b.layers[i].inputs));
      const QuantizedLinear x = from.quantized->layer(i), y = to.quantized->layer(i);
      EXPECT_EQ(x.input_scale, y.input_scale);
      EXPECT_EQ(x.input_zero, y.input_zero);
    }
    for (const FloatTensor& tensor : a.floats)
      EXPECT_TRUE(equal_bytes(from.stored->get(tensor.name), to.stored->get(tensor.name))) << tensor.name;
  }
  remove_tree(folder);
}

std::vector<std::string> cases() {
  std::vector<std::string> names;
  for (const auto& [name, exact] : kExact) names.push_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Peers, Conversion, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param; });

TEST(ConversionToFloats, IsAFloatCheckpoint) {
  const Checkpoint from = open_checkpoint(source_path("tests/golden/quantized/mo_w4a16_awq"));
  const std::string folder = make_temporary_directory(), out = join_path(folder, "floats");
  write_dequantized(from, out);
  const Checkpoint to = open_checkpoint(out);
  EXPECT_EQ(to.quantized, nullptr);
  const std::string weight = "model.layers.0.mlp.up_proj.weight";
  EXPECT_TRUE(equal_bytes(from.weights->get(weight), to.weights->get(weight)));  // factors among them
  EXPECT_EQ(to.weights->get("lm_head.weight").dtype(), DType::kBF16);
  EXPECT_NO_THROW(build_graph(to));
  EXPECT_THROW(write_dequantized(from, out), Error);  // it holds a model already
  EXPECT_THROW(write_dequantized(to, out + "2"), Error);
  remove_tree(folder);
}

// Scales that are no float16 numbers, found before anything is written.
TEST(Adapt, NamesTheScaleThatDoesNotFit) {
  class Wide final : public QuantizedSource {
   public:
    Wide() {
      layer_.module = "m.q_proj";
      layer_.outs = 2;
      layer_.ins = 4;
      layer_.weights = {DType::kI4, 4, true, DType::kF32, 1, 2, false};
      layer_.codes.assign(8, 1);
      layer_.scales = {1, 2, 0.1f, 4};
      model_.layers.push_back(layer_);
    }
    const QuantizedModel& model() const override { return model_; }
    QuantizedLinear layer(std::size_t) const override { return layer_; }
    Tensor float_tensor(const std::string&) const override { return {}; }

   private:
    QuantizedLinear layer_;
    QuantizedModel model_;
  };
  for (const Dialect dialect : {Dialect::kAutoAwq, Dialect::kGptq, Dialect::kGptqV2, Dialect::kGguf}) {
    try {
      adapt_to(std::make_shared<const Wide>(), dialect);
      ADD_FAILURE() << name(dialect);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_NE(std::string(error.what()).find("0.1"), std::string::npos) << error.what();
      EXPECT_NE(error.where().find("m.q_proj"), std::string::npos);
    }
  }
  EXPECT_NO_THROW(adapt_to(std::make_shared<const Wide>(), Dialect::kCompressedTensors));
}

}  // namespace
}  // namespace pare
