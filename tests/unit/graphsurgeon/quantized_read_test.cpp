// Quantized checkpoints that the peers' own code packed (tests/golden/quantized/make.py): every weight in
// every bit, the graph that holds codes against the graph of floats, and files that lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "engine/base/sha256.h"
#include "engine/base/thread_pool.h"
#include "engine/numeric/convert.h"
#include "engine/run/session.h"
#include "graphsurgeon/checkpoint/dialect.h"
#include "graphsurgeon/checkpoint/read_quantized.h"
#include "graphsurgeon/checkpoint/safetensors.h"
#include "graphsurgeon/families/family.h"
#include "graphsurgeon/open_checkpoint.h"
#include "tests/unit/errors.h"
#include "tests/unit/test_paths.h"

namespace pare {
namespace {

std::string all_of(const Error& error) {
  return error.what() + std::string("|") + error.where() + "|" + error.hint();
}

std::string peer_file(const std::string& kind) { return source_path("tests/golden/quantized/" + kind); }

std::vector<std::string> kinds() {
  std::vector<std::string> names;
  for (const std::string& name : list_directory(source_path("tests/golden/quantized")))
    if (is_directory(peer_file(name))) names.push_back(name);
  return names;
}

std::vector<float> logits(const Checkpoint& checkpoint, bool dequantize) {
  static ThreadPool pool(1);
  BuildOptions options;
  options.dequantize = dequantize;
  SessionOptions session_options;
  session_options.pool = &pool;
  Session session(std::make_shared<const Graph>(build_graph(checkpoint, options)), session_options);
  const std::vector<std::int64_t> ids = {3, 1, 4, 1, 5, 9, 2, 6, 5, 35};
  const std::vector<Tensor> out = session.run({Tensor::from(DType::kI64, {1, 10}, ids)});
  return {out[0].as<float>(), out[0].as<float>() + out[0].size()};
}

class PeerFile : public testing::TestWithParam<std::string> {};

TEST_P(PeerFile, WeightsAreThePeersInEveryBit) {
  const Checkpoint checkpoint = open_checkpoint(peer_file(GetParam()));
  ASSERT_NE(checkpoint.quantized, nullptr);
  const Json expected = read_json_file(peer_file(GetParam()) + "/expected.json");
  EXPECT_EQ(checkpoint.quantized->model().layers.size(), expected.size());
  EXPECT_GE(expected.size(), 7u);
  for (const auto& [weight, said] : expected.items()) {
    const Tensor values = checkpoint.weights->get(weight);
    // Peers compute in the type of the scales: one rounding of what float32 holds exactly.
    DType type = DType::kUndefined;
    ASSERT_TRUE(dtype_from_name(said[0].get<std::string>(), type));
    Tensor rounded = Tensor::allocate(type, values.dims());
    encode(type, values.as<float>(), rounded.mut<std::byte>(), values.size());
    Sha256 hash;
    hash.update(rounded.byte_span());
    EXPECT_EQ(hex(hash.finish()), said[1].get<std::string>()) << weight;
  }
}

// Codes and floats make one function: MatMul of the same numbers, in the same order but where GPTQ's act
// order sorts the inputs. What the config says of the inputs is left out here by choosing files without it.
TEST_P(PeerFile, TheGraphOfCodesIsTheGraphOfFloats) {
  const Checkpoint checkpoint = open_checkpoint(peer_file(GetParam()));
  const std::vector<LinearFormat>& layers = checkpoint.quantized->model().layers;
  const Graph graph = build_graph(checkpoint);
  const std::int64_t products = static_cast<std::int64_t>(layers.size());
  std::int64_t coded = 0;
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    if (!node.is("MatMul") || graph.producer(node.in[1]) == NodeId::kNone) continue;
    const Node& dq = graph.node(graph.producer(node.in[1]));
    if (!dq.is("DequantizeLinear")) continue;
    ++coded;
    EXPECT_LE(bits(graph.value(dq.in[0]).dtype), 8);
  }
  EXPECT_EQ(coded, products);
  const std::vector<float> got = logits(checkpoint, false), want = logits(checkpoint, true);
  ASSERT_EQ(got.size(), want.size());
  const bool inputs =
      layers[0].inputs.active() || checkpoint.quantized->model().kv_cache != DType::kUndefined;
  double worst = 0, size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::isfinite(got[i]));
    worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
    size = std::max(size, std::fabs(static_cast<double>(want[i])));
  }
  // Sums in another order: 300 operations within 2^-24 of values up to `size`, as in families_test.cpp.
  if (inputs) {
    EXPECT_GT(worst, 0);  // the inputs are rounded
    EXPECT_LT(worst, size);
  } else {
    EXPECT_LE(worst, 300 * size * 0x1p-24);
  }
}

INSTANTIATE_TEST_SUITE_P(Peers, PeerFile, testing::ValuesIn(kinds()),
                         [](const auto& test) { return test.param; });

TEST(QuantizedRead, FormatsAreWhatTheFilesSay) {
  const auto first = [](const char* kind) { return open_quantized(peer_file(kind))->model().layers.front(); };
  EXPECT_EQ(to_string(first("ct_w4a16").weights), "int4, groups of 32, scales bfloat16");
  EXPECT_EQ(to_string(first("ct_w4a16_asym").weights), "int4, zero points, groups of 32, scales bfloat16");
  EXPECT_EQ(to_string(first("gptq_3bit").weights), "int3, groups of 32, scales float16");
  EXPECT_EQ(to_string(first("awq").weights), "uint4, zero points, groups of 32, scales float16");
  EXPECT_TRUE(first("gptq_actorder").act_order);
  EXPECT_FALSE(first("gptq").act_order);
  EXPECT_EQ(first("ct_w8a8").inputs.codes, DType::kI8);
  EXPECT_TRUE(first("ct_w8a8").inputs.dynamic);
  EXPECT_TRUE(first("ct_nvfp4").inputs.two_levels());
  EXPECT_EQ(open_quantized(peer_file("mo_fp8"))->model().kv_cache, DType::kE4M3FN);
  ASSERT_EQ(open_quantized(peer_file("mo_fp8"))->model().kv_scales.size(), 1u);
  EXPECT_EQ(open_quantized(peer_file("mo_fp8"))->model().kv_scales[0].key, 0.05f);
  EXPECT_EQ(open_quantized(peer_file("ct_w4a16"))->model().ignored, std::vector<std::string>{"lm_head"});
}

// --- files that lie

struct Lie {
  const char* what;    // of the test
  const char* from;    // a peer's file
  const char* tensor;  // last part of the tensor of q_proj that is changed; "" none
  const char*
      change;  // "drop", "type:F32", "shape:..." (JSON), or config: a JSON patch of quantization_config
  ErrorCode code;
  const char* said;  // part of the error
};

const Lie kLies[] = {
    {"no_scale", "ct_w4a16", "weight_scale", "drop", ErrorCode::kBadFile, "q_proj.weight_scale"},
    {"no_codes", "ct_w4a16", "weight_packed", "drop", ErrorCode::kBadFile, "q_proj.weight"},
    {"no_shape", "ct_w4a16", "weight_shape", "drop", ErrorCode::kBadFile, "q_proj.weight_shape"},
    {"no_zeros", "ct_w4a16_asym", "weight_zero_point", "drop", ErrorCode::kBadFile, "weight_zero_point"},
    {"packed_shape", "ct_w4a16", "weight_packed", "shape:[32,16]", ErrorCode::kBadFile, "weight_packed"},
    {"scale_shape", "ct_w4a16", "weight_scale", "shape:[32,4]", ErrorCode::kBadFile, "it is [64,2]"},
    {"fp8_no_scale", "ct_fp8", "weight_scale", "drop", ErrorCode::kBadFile, "there is no scale"},
    {"nvfp4_no_global", "mo_nvfp4", "weight_scale_2", "drop", ErrorCode::kBadFile, "weight_scale"},
    {"static_input", "ct_fp8", "input_scale", "drop", ErrorCode::kBadFile, "q_proj.input_scale"},
    {"awq_zeros", "awq", "qzeros", "drop", ErrorCode::kBadFile, "q_proj.qzeros"},
    {"awq_shape", "awq", "qweight", "shape:[32,16]", ErrorCode::kBadFile, "q_proj"},
    {"gptq_scales", "gptq", "scales", "drop", ErrorCode::kBadFile, "q_proj.scales"},
    {"gptq_zero_shape", "gptq", "qzeros", "shape:[4,4]", ErrorCode::kBadFile, "q_proj.qzeros"},
    {"method", "awq", "", R"({"quant_method":"bitsandbytes"})", ErrorCode::kUnsupported,
     "gptq, modelopt and fp8"},
    {"no_method", "awq", "", R"({"quant_method":null})", ErrorCode::kUnsupported, "no quant_method"},
    {"version", "awq", "", R"({"version":"gemv"})", ErrorCode::kUnsupported, "gemm"},
    {"awq_bits", "awq", "", R"({"bits":3})", ErrorCode::kUnsupported, "read are 4"},
    {"awq_group", "awq", "", R"({"group_size":40})", ErrorCode::kBadFile, "do not divide"},
    {"awq_wrong_group", "awq", "", R"({"group_size":16})", ErrorCode::kBadFile, "with groups of 16"},
    {"gptq_bits", "gptq", "", R"({"bits":9})", ErrorCode::kUnsupported, "9 bits"},
    {"gptq_other_bits", "gptq", "", R"({"bits":8})", ErrorCode::kBadFile, "qweight"},
    {"gptq_format", "gptq", "", R"({"checkpoint_format":"marlin"})", ErrorCode::kUnsupported, "gptq_v2 are"},
    {"ct_format", "ct_w4a16", "",
     R"({"format":"marlin-24","config_groups":{"group_0":{"format":"marlin-24"}}})", ErrorCode::kUnsupported,
     "pack-quantized"},
    {"ct_group", "ct_w4a16", "", R"({"config_groups":{"group_0":{"weights":{"group_size":40}}}})",
     ErrorCode::kBadFile, "do not divide"},
    {"ct_bits", "ct_w4a16", "", R"({"config_groups":{"group_0":{"weights":{"num_bits":64}}}})",
     ErrorCode::kUnsupported, "64 bits"},
    {"ct_fewer_bits", "ct_w4a16", "", R"({"config_groups":{"group_0":{"weights":{"num_bits":3}}}})",
     ErrorCode::kBadFile, "weight_packed"},
    {"ct_strategy", "ct_w4a16", "", R"({"config_groups":{"group_0":{"weights":{"strategy":"rows"}}}})",
     ErrorCode::kUnsupported, "tensor_group"},
    {"ct_groups", "ct_w4a16", "", R"({"config_groups":null})", ErrorCode::kBadFile, "config_groups"},
    {"ct_target", "ct_w4a16", "", R"({"config_groups":{"group_0":{"targets":["model.other.layer"]}}})",
     ErrorCode::kBadFile, "no group of the config"},
    {"ct_rotation", "ct_w4a16", "", R"({"transform_config":{"config_groups":{"u":{}}}})",
     ErrorCode::kUnsupported, "rotations"},
    {"fp8_block", "fp8_block", "", R"({"weight_block_size":[0,32]})", ErrorCode::kBadFile,
     "weight_block_size"},
    {"fp8_other_block", "fp8_block", "", R"({"weight_block_size":[128,128]})", ErrorCode::kBadFile,
     "weight_scale_inv"},
};

std::string safetensors_bytes(const Json& header, const std::string& data) {
  std::string text = dump(header);
  while (text.size() % 8 != 0) text += ' ';
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + data;
}

class QuantizedLie : public testing::TestWithParam<Lie> {};

TEST_P(QuantizedLie, IsNamed) {
  const Lie& lie = GetParam();
  const std::string folder = make_temporary_directory();
  const std::string from = peer_file(lie.from), change = lie.change;
  Json config = read_json_file(from + "/config.json");
  if (std::string(lie.tensor).empty())
    config["quantization_config"].merge_patch(parse_json(change, "change"));
  write_file_atomically(folder + "/config.json", dump(config));
  if (is_regular_file(from + "/hf_quant_config.json"))
    write_file_atomically(folder + "/hf_quant_config.json",
                          dump(read_json_file(from + "/hf_quant_config.json")));
  // The tensors again, with one changed or left out.
  const std::string victim = std::string("model.layers.0.self_attn.q_proj.") + lie.tensor;
  Json header = Json::object();
  std::string data;
  for (const auto& [name, tensor] : open_safetensors(from + "/model.safetensors").tensors) {
    if (name == victim && change == "drop") continue;
    const std::string bytes(static_cast<const char*>(tensor.data()),
                            static_cast<std::size_t>(tensor.bytes()));
    const auto& type = [&] {
      switch (tensor.dtype()) {
        case DType::kI32:
          return "I32";
        case DType::kI64:
          return "I64";
        case DType::kI8:
          return "I8";
        case DType::kU8:
          return "U8";
        case DType::kF16:
          return "F16";
        case DType::kBF16:
          return "BF16";
        case DType::kE4M3FN:
          return "F8_E4M3";
        default:
          return "F32";
      }
    }();
    Json dims = tensor.dims();
    if (name == victim && change.rfind("shape:", 0) == 0) dims = parse_json(change.substr(6), "change");
    header[name] = {
        {"dtype", type}, {"shape", dims}, {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  }
  write_file_atomically(folder + "/model.safetensors", safetensors_bytes(header, data));
  const Error error = thrown_by([&] { build_graph(open_checkpoint(folder)); });
  EXPECT_EQ(error.code(), lie.code) << all_of(error);
  EXPECT_NE(all_of(error).find(lie.said), std::string::npos) << all_of(error);
  remove_tree(folder);
}

INSTANTIATE_TEST_SUITE_P(Lies, QuantizedLie, testing::ValuesIn(kLies),
                         [](const auto& test) { return std::string(test.param.what); });

}  // namespace
}  // namespace pare
