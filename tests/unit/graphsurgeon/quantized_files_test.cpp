// Quantized checkpoints: tensors bit by bit against golden vectors of the formats' own packers, whole folders
// of small models, and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>

#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/isa.h"
#include "engine/base/json.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "engine/numeric/bf16.h"
#include "engine/numeric/e2m1.h"
#include "engine/numeric/e4m3.h"
#include "graphsurgeon/checkpoint/write_quantized.h"
#include "graphsurgeon/families/linear_modules.h"
#include "graphsurgeon/open_checkpoint.h"
#include "tests/unit/test_paths.h"

namespace pare {
namespace {

Json golden(const char* name) {
  return read_json_file(source_path(std::string("tests/golden/codecs/") + name));
}

template <typename T>
std::vector<T> flat(const Json& rows) {
  std::vector<T> out;
  for (const Json& row : rows) {
    if (row.is_array())
      for (const Json& v : row) out.push_back(static_cast<T>(v.get<double>()));
    else
      out.push_back(static_cast<T>(row.get<double>()));
  }
  return out;
}

template <typename T>
std::vector<T> values_of(const Tensor& tensor) {
  std::vector<T> out(static_cast<std::size_t>(tensor.bytes()) / sizeof(T));
  std::memcpy(out.data(), tensor.data(), out.size() * sizeof(T));
  return out;
}

std::map<std::string, Tensor> tensors_of(Dialect dialect, const QuantizedLinear& layer) {
  std::map<std::string, Tensor> out;
  for (const StoredTensor& tensor : dialect_info(dialect).tensors(layer)) {
    EXPECT_EQ(tensor.data.dtype(), tensor.dtype) << tensor.name;
    EXPECT_EQ(tensor.data.dims(), tensor.dims) << tensor.name;
    EXPECT_EQ(tensor.name.rfind(layer.module + ".", 0), 0u);
    out[tensor.name.substr(layer.module.size() + 1)] = tensor.data;
  }
  return out;
}

QuantizedLinear integers(std::int64_t outs, std::int64_t ins, int bits, std::int64_t group, DType codes,
                         DType scales) {
  QuantizedLinear layer;
  layer.module = "m";
  layer.outs = outs;
  layer.ins = ins;
  layer.weights.codes = codes;
  layer.weights.bits = bits;
  layer.weights.group = group;
  layer.weights.scales = scales;
  layer.codes.assign(static_cast<std::size_t>(outs * ins), 0);
  layer.scales.assign(static_cast<std::size_t>(row_groups(layer) * column_groups(layer)), 0.5f);
  return layer;
}

TEST(QuantizedFiles, CompressedTensorsGoldenWords) {
  const Json all = golden("ct_golden.json");
  for (int bits = 2; bits <= 8; ++bits) {
    const Json& entry = all["ct_pack_int" + std::to_string(bits)];
    QuantizedLinear layer = integers(3, 64, bits, 0, DType::kI8, DType::kBF16);
    const std::vector<int> q = flat<int>(entry["q"]);
    for (std::size_t i = 0; i < q.size(); ++i) layer.codes[i] = static_cast<std::uint8_t>(q[i]);
    check_linear(layer);
    const auto tensors = tensors_of(Dialect::kCompressedTensors, layer);
    EXPECT_EQ(values_of<std::int32_t>(tensors.at("weight_packed")), flat<std::int32_t>(entry["packed_int32"]))
        << bits;
    EXPECT_EQ(values_of<std::int64_t>(tensors.at("weight_shape")), (std::vector<std::int64_t>{3, 64}));
    EXPECT_EQ(tensors.at("weight_scale").dims(), (Dims{3, 1}));
    EXPECT_EQ(tensors.at("weight_scale").dtype(), DType::kBF16);
    // The same codes as unsigned numbers with the middle zero point are the same layer.
    QuantizedLinear turned = layer;
    const int middle = 1 << (bits - 1);
    for (std::uint8_t& code : turned.codes)
      code = static_cast<std::uint8_t>(static_cast<std::int8_t>(code) + middle);
    turned.zero_points.assign(turned.scales.size(), middle);
    turned.weights.symmetric = false;
    turned.weights.codes = DType::kU8;
    to_signed(turned);
    EXPECT_EQ(turned.codes, layer.codes);
    EXPECT_TRUE(turned.weights.symmetric && turned.zero_points.empty());
  }
  const Json& zp = all["ct_pack_zp_int4"];
  QuantizedLinear layer = integers(16, 64, 4, 32, DType::kI4, DType::kBF16);
  layer.weights.symmetric = false;
  layer.zero_points = flat<std::int32_t>(zp["zp_[out,groups]"]);
  const auto tensors = tensors_of(Dialect::kCompressedTensors, layer);
  EXPECT_EQ(values_of<std::int32_t>(tensors.at("weight_zero_point")),
            flat<std::int32_t>(zp["packed_int32_[ceil(out*4/32),groups]"]));
}

// The whole way of one weight: codes and scales of the golden quantizers into the tensors of the files.
TEST(QuantizedFiles, CompressedTensorsGoldenLayers) {
  const Json all = golden("e2e_golden.json");
  const Json& nvfp4 = all["nvfp4"];
  QuantizedLinear layer = integers(2, 64, 0, 16, DType::kE2M1, DType::kE4M3FN);
  layer.codes = flat<std::uint8_t>(nvfp4["codes"]);
  const std::vector<std::uint8_t> scales = flat<std::uint8_t>(nvfp4["weight_scale_e4m3_bytes"]);
  for (std::size_t i = 0; i < scales.size(); ++i)
    layer.scales[i] = std::ldexp(static_cast<float>(8 + (scales[i] & 7)), (scales[i] >> 3) - 10);
  layer.global = static_cast<float>(nvfp4["weight_global_scale_f32"].get<double>());
  layer.global_divides = true;
  auto tensors = tensors_of(Dialect::kCompressedTensors, layer);
  EXPECT_EQ(values_of<std::uint8_t>(tensors.at("weight_packed")),
            flat<std::uint8_t>(nvfp4["weight_packed_u8"]));
  EXPECT_EQ(values_of<std::uint8_t>(tensors.at("weight_scale")), scales);
  EXPECT_EQ(tensors.at("weight_scale").dtype(), DType::kE4M3FN);
  EXPECT_EQ(*tensors.at("weight_global_scale").as<float>(), 28032.0f);
  const Json& mxfp4 = all["mxfp4"];
  layer = integers(2, 64, 0, 32, DType::kE2M1, DType::kE8M0);
  const std::vector<std::uint8_t> packed = flat<std::uint8_t>(mxfp4["weight_packed_u8"]);
  for (std::size_t i = 0; i < packed.size(); ++i) {
    layer.codes[2 * i] = packed[i] & 15;
    layer.codes[2 * i + 1] = packed[i] >> 4;
  }
  const std::vector<std::uint8_t> exponents = flat<std::uint8_t>(mxfp4["weight_scale_e8m0"]);
  for (std::size_t i = 0; i < exponents.size(); ++i) layer.scales[i] = std::ldexp(1.0f, exponents[i] - 127);
  tensors = tensors_of(Dialect::kCompressedTensors, layer);
  EXPECT_EQ(values_of<std::uint8_t>(tensors.at("weight_packed")), packed);
  EXPECT_EQ(values_of<std::uint8_t>(tensors.at("weight_scale")), exponents);
  EXPECT_EQ(tensors.at("weight_scale").dtype(), DType::kU8);
  EXPECT_EQ(tensors.count("weight_global_scale"), 0u);
}

TEST(QuantizedFiles, AwqAndGptqGoldenWords) {
  const Json all = golden("awq_gptq_golden.json");
  const auto layer_of = [&](const Json& entry) {
    QuantizedLinear layer = integers(32, 8, 4, 4, DType::kU4, DType::kF16);
    layer.weights.symmetric = false;
    const std::vector<std::uint8_t> codes = flat<std::uint8_t>(entry["codes_[in,out]"]);
    const std::vector<std::int32_t> zeros = flat<std::int32_t>(entry["zeros_[in/g,out]"]);
    layer.zero_points.resize(64);
    for (std::size_t out = 0; out < 32; ++out) {
      for (std::size_t in = 0; in < 8; ++in) layer.codes[out * 8 + in] = codes[in * 32 + out];
      for (std::size_t g = 0; g < 2; ++g) {
        layer.zero_points[out * 2 + g] = zeros[g * 32 + out];
        layer.scales[out * 2 + g] = 0.25f * static_cast<float>(g * 32 + out + 1);
      }
    }
    check_linear(layer);
    return layer;
  };
  const Json& awq = all["awq_gemm"];
  QuantizedLinear layer = layer_of(awq);
  auto tensors = tensors_of(Dialect::kAutoAwq, layer);
  EXPECT_EQ(values_of<std::int32_t>(tensors.at("qweight")),
            flat<std::int32_t>(awq["qweight_int32_[in,out/8]"]));
  EXPECT_EQ(values_of<std::int32_t>(tensors.at("qzeros")),
            flat<std::int32_t>(awq["qzeros_int32_[in/g,out/8]"]));
  EXPECT_EQ(tensors.at("scales").dims(), (Dims{2, 32}));
  EXPECT_EQ(values_of<std::uint16_t>(tensors.at("scales"))[33], 0x4840);  // 0.25 * 34 = 8.5
  const Json& gptq = all["gptq"];
  layer = layer_of(gptq);
  for (const Dialect dialect : {Dialect::kGptq, Dialect::kGptqV2}) {
    tensors = tensors_of(dialect, layer);
    EXPECT_EQ(values_of<std::int32_t>(tensors.at("qweight")),
              flat<std::int32_t>(gptq["qweight_int32_[in/8,out]"]));
    EXPECT_EQ(values_of<std::int32_t>(tensors.at("qzeros")),
              flat<std::int32_t>(gptq[dialect == Dialect::kGptq ? "qzeros_v1_int32" : "qzeros_v2_int32"]));
    EXPECT_EQ(values_of<std::int32_t>(tensors.at("g_idx")), flat<std::int32_t>(gptq["g_idx"]));
  }
  // A symmetric layer: every zero point the middle.
  layer = integers(32, 32, 4, 32, DType::kI4, DType::kF16);
  EXPECT_EQ(values_of<std::uint32_t>(tensors_of(Dialect::kGptq, layer).at("qzeros"))[0], 0x77777777u);
  EXPECT_EQ(values_of<std::uint32_t>(tensors_of(Dialect::kGptqV2, layer).at("qzeros"))[0], 0x88888888u);
  EXPECT_EQ(values_of<std::uint32_t>(tensors_of(Dialect::kAutoAwq, layer).at("qzeros"))[0], 0x88888888u);
  // Version 1 cannot say zero point 0.
  layer = layer_of(awq);
  layer.zero_points[5] = 0;
  EXPECT_THROW(tensors_of(Dialect::kGptq, layer), Error);
  EXPECT_NO_THROW(tensors_of(Dialect::kGptqV2, layer));
}

TEST(QuantizedFiles, ModelOptimizerLayers) {
  QuantizedLinear layer = integers(2, 32, 4, 16, DType::kI4, DType::kF32);
  layer.codes[0] = 1;
  layer.codes[32] = 0xFF;  // -1 below it
  auto tensors = tensors_of(Dialect::kModelOpt, layer);
  EXPECT_EQ(tensors.at("weight").dims(), (Dims{1, 32}));
  EXPECT_EQ(tensors.at("weight").as<std::uint8_t>()[0], 0xF1);
  EXPECT_EQ(tensors.at("weight_scale").dims(), (Dims{2, 2}));
  // Two levels: the inverse of compressed-tensors' global scale, and both scales of the inputs.
  layer = integers(2, 32, 0, 16, DType::kE2M1, DType::kE4M3FN);
  layer.global = turnable_global(0.0003f);
  layer.inputs = layer.weights;
  layer.input_scale = 0.25f;
  const auto factor = tensors_of(Dialect::kModelOpt, layer),
             divisor = tensors_of(Dialect::kCompressedTensors, layer);
  EXPECT_EQ(factor.at("weight_scale_2").dims(), Dims{});
  EXPECT_EQ(*factor.at("weight_scale_2").as<float>(), layer.global);
  EXPECT_EQ(*factor.at("input_scale").as<float>(), 0.25f);
  EXPECT_NEAR(*divisor.at("weight_global_scale").as<float>() * layer.global, 1, 1e-6);
  EXPECT_EQ(*divisor.at("input_global_scale").as<float>(), 4.0f);
}

// What both forms of two-level scales need: a float32 whose inverse divides to the same bits.
TEST(QuantizedFiles, TurnableGlobals) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> exponent(-40, 40);
  double farthest = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto wanted = static_cast<float>(std::exp2(exponent(random)));
    QuantizedLinear layer = integers(1, 16 * 126, 0, 16, DType::kE2M1, DType::kE4M3FN);
    layer.global = turnable_global(wanted);
    farthest = std::max(farthest, std::fabs(static_cast<double>(layer.global) / wanted - 1));
    for (int code = 1; code <= 126; ++code) {
      const int e = code >> 3, m = code & 7;
      layer.scales[static_cast<std::size_t>(code - 1)] =
          e == 0 ? std::ldexp(static_cast<float>(m), -9) : std::ldexp(static_cast<float>(8 + m), e - 10);
    }
    layer.codes[0] = 7;
    QuantizedLinear turned = layer;
    ASSERT_TRUE(turn_global(turned, true)) << wanted;
    ASSERT_TRUE(turned.global_divides);
    ASSERT_EQ(hash_of_values(turned), hash_of_values(layer));
    // Inputs too: one float32 in seven is not the inverse of its inverse.
    layer.inputs = layer.weights;
    layer.input_scale = turnable_input(wanted);
    ASSERT_NEAR(layer.input_scale / wanted, 1, 1e-6);
    turned = layer;
    ASSERT_TRUE(turn_global(turned, true)) << wanted;
    ASSERT_EQ(1 / turned.input_scale, layer.input_scale);
    ASSERT_TRUE(turn_global(turned, false));
    ASSERT_EQ(turned.input_scale, layer.input_scale);
    layer.input_scale = wanted;
    turned = layer;
    ASSERT_EQ(turn_global(turned, true), 1 / (1 / wanted) == wanted) << "nothing is rounded";
    ASSERT_TRUE(turn_global(turned, false));
    ASSERT_EQ(hash_of_values(turned), hash_of_values(layer));
  }
  EXPECT_LT(farthest, 1e-5);
}

TEST(QuantizedFiles, ValuesFollowTheHeader) {
  QuantizedLinear layer = integers(2, 4, 4, 2, DType::kU4, DType::kF32);
  layer.weights.symmetric = false;
  layer.codes = {0, 15, 3, 8, 1, 2, 4, 5};
  layer.scales = {0.5f, 2, 0.25f, 1};
  layer.zero_points = {8, 0, 1, 15};
  layer.act_order = true;
  layer.group_of = {1, 0, 1, 0};
  check_linear(layer);
  float w[8];
  dequantize_linear(layer, w);
  const float want[8] = {0, 3.5f, 6, 0, -14, 0.25f, -11, 1};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(w[i], want[i]) << i;
  layer.codes[3] = 16;
  EXPECT_THROW(check_linear(layer), Error);
  layer.codes[3] = 0;
  layer.group_of[0] = 2;
  EXPECT_THROW(check_linear(layer), Error);
  layer.group_of[0] = 0;
  layer.scales[1] = NAN;
  EXPECT_THROW(check_linear(layer), Error);
}

// Rows of every length around the vectors' own, all codes, short groups; in every instruction class the
// number that the header's formula gives, and the same hash. A single other value is another hash.
TEST(QuantizedFiles, ValuesAndHashesInEveryClass) {
  const Isa best = best_isa();
  std::mt19937 random(3);
  for (const DType type : {DType::kI8, DType::kU8, DType::kE4M3FN, DType::kE2M1})
    for (const std::int64_t ins : {1, 15, 16, 17, 31, 32, 33, 70, 256})
      for (const std::int64_t group : {0, 16, 24}) {
        SCOPED_TRACE(std::string(name(type)) + " " + std::to_string(ins) + " " + std::to_string(group));
        QuantizedLinear layer = integers(9, ins, 8, group, type, DType::kF32);
        layer.weights.symmetric = type != DType::kU8;
        if (type == DType::kU8) layer.zero_points.assign(layer.scales.size(), 0);
        for (std::uint8_t& code : layer.codes)
          code = static_cast<std::uint8_t>(type == DType::kE2M1 ? random() % 16 : random() % 256);
        for (std::uint8_t& code : layer.codes)
          if (type == DType::kE4M3FN && (code & 0x7F) == 0x7F) code = 0x80;  // NaN
        for (float& scale : layer.scales) scale = std::ldexp(static_cast<float>(1 + random() % 1000), -12);
        for (std::int32_t& zero : layer.zero_points) zero = static_cast<std::int32_t>(random() % 256);
        std::vector<float> wanted;
        const std::int64_t groups = column_groups(layer);
        for (std::int64_t r = 0; r < layer.outs; ++r)
          for (std::int64_t c = 0; c < ins; ++c) {
            const auto g = static_cast<std::size_t>(r * groups + (group == 0 ? 0 : c / group));
            const std::uint8_t code = layer.codes[static_cast<std::size_t>(r * ins + c)];
            const float value = type == DType::kI8 ? static_cast<float>(static_cast<std::int8_t>(code))
                                : type == DType::kU8
                                    ? static_cast<float>(code) - static_cast<float>(layer.zero_points[g])
                                : type == DType::kE4M3FN ? decode_e4m3(code)
                                                         : decode_e2m1(code);
            wanted.push_back(value * layer.scales[g]);
          }
        std::uint64_t hash = 0;
        for (const Isa one : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
          if (one > best) continue;
          set_isa(one);
          std::vector<float> got(wanted.size());
          dequantize_linear(layer, got.data());
          EXPECT_EQ(std::memcmp(got.data(), wanted.data(), 4 * got.size()), 0) << name(one);
          if (hash == 0) hash = hash_of_values(layer);
          EXPECT_EQ(hash_of_values(layer), hash) << name(one);
          QuantizedLinear other = layer;
          const std::size_t at = random() % other.codes.size();
          other.codes[at] = static_cast<std::uint8_t>(other.codes[at] ^ 1);
          std::vector<float> changed(wanted.size());
          dequantize_linear(other, changed.data());
          EXPECT_EQ(hash_of_values(other) != hash, changed[at] != got[at]) << at;  // -0 is 0
          if (type == DType::kI8 || type == DType::kU8) {
            check_linear(layer);
            other.weights.bits = 7;  // some code is beyond
            if (other.codes.size() > 200) {
              EXPECT_THROW(check_linear(other), Error);
            }
          }
          set_isa(best);
        }
      }
}

// --- folders

// Random codes for the linear layers of a tiny model, but not for the head and what chooses experts.
class RandomSource final : public QuantizedSource {
 public:
  RandomSource(const std::string& family, const CodeFormat& weights, const CodeFormat& inputs = {})
      : checkpoint_(open_checkpoint(source_path("tests/golden/families/" + family))) {
    std::map<std::string, bool> coded;
    for (const LinearModule& module : linear_modules(checkpoint_)) {
      // Sizes that every format takes; the mlps of these models have 40 columns.
      if (module.router || module.module == "lm_head" || module.ins % 32 != 0 || module.outs % 32 != 0) {
        model_.ignored.push_back(module.module);
        continue;
      }
      LinearFormat layer;
      layer.module = module.module;
      layer.outs = module.outs;
      layer.ins = module.ins;
      layer.in_first = module.in_first;
      layer.weights = weights;
      layer.inputs = inputs;
      model_.layers.push_back(layer);
      coded[module.weight] = true;
    }
    for (const WeightStore::Entry& entry : checkpoint_.weights->entries()) {
      DType type = DType::kF32;
      EXPECT_TRUE(dtype_from_name(entry.type, type));
      if (coded.count(entry.name) == 0) model_.floats.push_back({entry.name, type, entry.dims});
    }
    model_.folder = checkpoint_.path;
  }

  const QuantizedModel& model() const override { return model_; }
  QuantizedModel& change() { return model_; }
  Tensor float_tensor(const std::string& name) const override { return checkpoint_.weights->get(name); }
  QuantizedLinear layer(std::size_t index) const override {
    QuantizedLinear layer;
    static_cast<LinearFormat&>(layer) = model_.layers.at(index);
    std::mt19937 random(static_cast<unsigned>(index));
    const auto count = static_cast<std::size_t>(layer.outs * layer.ins);
    const bool integer = is_integer(layer.weights.codes);
    for (std::size_t i = 0; i < count; ++i)
      layer.codes.push_back(
          integer ? static_cast<std::uint8_t>(static_cast<int>(random() % 16) - 8)
                  : static_cast<std::uint8_t>(random() % (layer.weights.codes == DType::kE2M1 ? 16 : 127)));
    layer.scales.assign(static_cast<std::size_t>(row_groups(layer) * column_groups(layer)), 0.0f);
    for (float& scale : layer.scales) scale = std::ldexp(1.0f, static_cast<int>(random() % 5) - 4);
    if (layer.weights.two_levels()) layer.global = turnable_global(0.01f);
    layer.input_scale = 0.125f;
    return layer;
  }
  const Checkpoint& checkpoint() const { return checkpoint_; }

 private:
  Checkpoint checkpoint_;
  QuantizedModel model_;
};

CodeFormat format_of(DType codes, int bits, std::int64_t group, DType scales, std::int64_t row_group = 1) {
  CodeFormat format;
  format.codes = codes;
  format.bits = bits;
  format.group = group;
  format.scales = scales;
  format.row_group = row_group;
  return format;
}
CodeFormat int4(DType scales) { return format_of(DType::kI4, 4, 32, scales); }

class Folder : public testing::Test {
 protected:
  Folder() : folder_(make_temporary_directory()) {}
  ~Folder() override {
    set_test_disk_space(-1);
    remove_tree(folder_);
  }
  std::string path(const std::string& name) const { return join_path(folder_, name); }
  Json config(const std::string& name) const { return read_json_file(path(name) + "/config.json"); }
  std::string folder_;
};

TEST_F(Folder, EveryFamilyInEveryShardSize) {
  int seen = 0;
  for (const char* family :
       {"llama", "mistral", "qwen2", "qwen3", "gemma2", "phi3", "mixtral", "qwen2_moe", "opt", "bert"}) {
    SCOPED_TRACE(family);
    const RandomSource source(family, int4(DType::kBF16));
    if (source.model().layers.empty()) continue;  // too narrow for groups of 32
    ++seen;
    for (const std::int64_t shard : {std::int64_t{1} << 30, std::int64_t{20000}}) {
      const std::string name = std::string(family) + std::to_string(shard);
      WriteQuantizedOptions options;
      options.shard_bytes = shard;
      const WrittenCheckpoint written =
          write_quantized(source, Dialect::kCompressedTensors, path(name), options);
      const std::unique_ptr<WeightStore> store = open_safetensors_weights(path(name));
      EXPECT_EQ(static_cast<std::int64_t>(store->entries().size()), written.tensors);
      EXPECT_EQ(store->bytes(), written.bytes);
      for (const FloatTensor& tensor : source.model().floats)
        EXPECT_TRUE(equal_bytes(store->get(tensor.name), source.float_tensor(tensor.name))) << tensor.name;
      for (std::size_t i = 0; i < source.model().layers.size(); ++i)
        for (const StoredTensor& tensor :
             dialect_info(Dialect::kCompressedTensors).tensors(source.layer(i))) {
          EXPECT_TRUE(equal_bytes(store->get(tensor.name), tensor.data)) << tensor.name;
          // Mapped by readers: at a multiple of the element size.
          EXPECT_EQ(reinterpret_cast<std::uintptr_t>(store->get(tensor.name).data()) %
                        (static_cast<std::size_t>(bits(tensor.dtype)) / 8),
                    0u);
        }
      const Json json = config(name)["quantization_config"];
      EXPECT_EQ(json["quant_method"], "compressed-tensors");
      EXPECT_EQ(json["format"], "pack-quantized");
      EXPECT_EQ(json["config_groups"]["group_0"]["weights"]["group_size"], 32);
      EXPECT_EQ(path_exists(path(name) + "/model.safetensors.index.json"), shard < 100000);
      // The rest of config.json is the source's.
      const Json before = read_json_file(source.checkpoint().path + "/config.json");
      EXPECT_EQ(config(name)["model_type"], before["model_type"]);
      EXPECT_EQ(config(name).size(), before.size() + 1);
    }
  }
  EXPECT_GE(seen, 6);
}

TEST_F(Folder, ConfigurationsSayWhatIsInside) {
  RandomSource mixed("mixtral", int4(DType::kBF16));
  mixed.change().layers[1].weights = format_of(DType::kE2M1, 0, 16, DType::kE4M3FN);
  mixed.change().layers[2].weights = format_of(DType::kE4M3FN, 0, 0, DType::kF32);
  mixed.change().layers[2].inputs = format_of(DType::kE4M3FN, 0, 0, DType::kF32);
  mixed.change().layers[2].inputs.dynamic = true;
  write_quantized(mixed, Dialect::kCompressedTensors, path("mixed"));
  Json json = config("mixed")["quantization_config"];
  EXPECT_EQ(json["format"], "mixed-precision");
  ASSERT_EQ(json["config_groups"].size(), 3u);
  EXPECT_EQ(json["config_groups"]["group_1"]["format"], "nvfp4-pack-quantized");
  EXPECT_EQ(json["config_groups"]["group_1"]["targets"], Json({mixed.model().layers[1].module}));
  EXPECT_EQ(json["config_groups"]["group_2"]["format"], "float-quantized");
  EXPECT_EQ(json["config_groups"]["group_2"]["input_activations"]["strategy"], "token");
  EXPECT_EQ(json["config_groups"]["group_2"]["input_activations"]["dynamic"], true);
  // Routers and the head were left alone, by name.
  bool router = false, head = false;
  for (const Json& module : json["ignore"]) {
    router = router || module == "model.layers.0.block_sparse_moe.gate";
    head = head || module == "lm_head";
  }
  EXPECT_TRUE(router && head);

  RandomSource gptq("llama", int4(DType::kF16));
  gptq.change().layers[0].weights.group = 0;
  write_quantized(gptq, Dialect::kGptq, path("gptq"));
  json = config("gptq")["quantization_config"];
  EXPECT_EQ(json["group_size"], 32);
  EXPECT_EQ(json["sym"], true);
  EXPECT_EQ(json["desc_act"], false);
  EXPECT_EQ(json["dynamic"]["+:^model\\.layers\\.0\\.self_attn\\.q_proj$"]["group_size"], -1);
  EXPECT_EQ(read_json_file(path("gptq") + "/quantize_config.json"), json);

  RandomSource modelopt("llama", format_of(DType::kE2M1, 0, 16, DType::kE4M3FN),
                        format_of(DType::kE2M1, 0, 16, DType::kE4M3FN));
  modelopt.change().kv_cache = DType::kE4M3FN;
  modelopt.change().kv_scales = {{"model.layers.0.self_attn", 0.5f, 0.25f}};
  write_quantized(modelopt, Dialect::kModelOpt, path("modelopt"));
  json = read_json_file(path("modelopt") + "/hf_quant_config.json")["quantization"];
  EXPECT_EQ(json["quant_algo"], "NVFP4");
  EXPECT_EQ(json["group_size"], 16);
  EXPECT_EQ(json["kv_cache_quant_algo"], "FP8");
  EXPECT_EQ(config("modelopt")["quantization_config"]["quant_method"], "modelopt");
  const std::unique_ptr<WeightStore> store = open_safetensors_weights(path("modelopt"));
  EXPECT_EQ(*store->get("model.layers.0.self_attn.v_proj.v_scale").as<float>(), 0.25f);

  RandomSource awq("qwen2", int4(DType::kF16));
  write_quantized(awq, Dialect::kAutoAwq, path("awq"));
  json = config("awq")["quantization_config"];
  EXPECT_EQ(json["quant_method"], "awq");
  EXPECT_EQ(json["zero_point"], false);
  EXPECT_EQ(json["version"], "gemm");
}

TEST_F(Folder, WhatDoesNotFitIsRefusedBeforeAnything) {
  const auto message = [&](const QuantizedSource& source, Dialect dialect) {
    try {
      write_quantized(source, dialect, path("refused"));
    } catch (const Error& error) {
      EXPECT_FALSE(path_exists(path("refused")));
      return std::string(error.what()) + "|" + error.hint();
    }
    return std::string();
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  const RandomSource fp4("llama", format_of(DType::kE2M1, 0, 16, DType::kE4M3FN));
  const std::string awq = message(fp4, Dialect::kAutoAwq);
  EXPECT_TRUE(has(awq, "layer 'model.layers.0.self_attn.q_proj'")) << awq;
  EXPECT_TRUE(has(awq, "these can: compressed_tensors, modelopt")) << awq;
  // Matrices stored [in, out]: GPTQ's tensors lie so anyway.
  const RandomSource gpt2("gpt2", int4(DType::kF16));
  EXPECT_TRUE(has(message(gpt2, Dialect::kCompressedTensors), "these can: gptq"));
  RandomSource differing("llama", int4(DType::kF16));
  differing.change().layers[3].weights.group = 16;
  EXPECT_TRUE(has(message(differing, Dialect::kAutoAwq), "differ"));
  const RandomSource wrong_scales("llama", int4(DType::kBF16));
  EXPECT_TRUE(has(message(wrong_scales, Dialect::kGptq), "float16"));
  write_file_atomically(path("config.json"), "{}");
  EXPECT_THROW(write_quantized(wrong_scales, Dialect::kCompressedTensors, folder_), Error);
}

TEST_F(Folder, AFullDiskLeavesNothing) {
  const RandomSource source("llama", int4(DType::kBF16));
  WriteQuantizedOptions options;
  options.shard_bytes = 20000;
  const std::int64_t whole =
      write_quantized(source, Dialect::kCompressedTensors, path("whole"), options).bytes;
  for (int part = 1; part <= 12; ++part) {
    set_test_disk_space(whole * part / 12);
    try {
      write_quantized(source, Dialect::kCompressedTensors, path("full"), options);
      ADD_FAILURE() << "the disk was not full";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDevice);
    }
    set_test_disk_space(-1);
    if (path_exists(path("full"))) {
      EXPECT_TRUE(list_directory(path("full")).empty()) << part;
    }
  }
}

}  // namespace
}  // namespace pare
