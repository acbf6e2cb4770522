// Checkpoint folders that lie: about their headers, their shards, their config.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
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

std::string safetensors_bytes(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}

class CheckpointFolder : public testing::Test {
 protected:
  CheckpointFolder() : folder_(make_temporary_directory()) {}
  ~CheckpointFolder() override { remove_tree(folder_); }
  void put(const std::string& name, const std::string& bytes) const {
    write_file_atomically(join_path(folder_, name), bytes);
  }
  void put_tensor(const std::string& file, const std::string& tensor) const {
    put(file, safetensors_bytes("{\"" + tensor + R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                                std::string(8, '\0')));
  }
  // The tiny Llama of tests/golden, with keys of its config changed.
  void copy_llama(const Json& changes) const {
    const std::string from = source_path("tests/golden/families/llama");
    Json config = read_json_file(from + "/config.json");
    for (const auto& [key, value] : changes.items()) config[key] = value;
    put("config.json", dump(config));
    put("model.safetensors", read_text_file(from + "/model.safetensors", 1 << 20));
  }
  std::string folder_;
};

TEST_F(CheckpointFolder, HeaderLengthsAreNotBelieved) {
  for (const std::uint64_t length :
       {std::uint64_t{1} << 63, UINT64_MAX, std::uint64_t{101} << 20, std::uint64_t{9}}) {
    put("model.safetensors", std::string(reinterpret_cast<const char*>(&length), sizeof length) + "{}      ");
    const Error error = thrown_by([&] { open_safetensors_weights(folder_); });
    EXPECT_EQ(error.code(), ErrorCode::kBadFile) << length;
    EXPECT_NE(all_of(error).find("model.safetensors"), std::string::npos);
  }
}

TEST_F(CheckpointFolder, UnknownTypesAreNamed) {
  put("model.safetensors",
      safetensors_bytes(R"({"a.weight":{"dtype":"F7","shape":[8],"data_offsets":[0,8]}})",
                        std::string(8, '\0')));
  const Error error = thrown_by([&] { open_safetensors_weights(folder_); });
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_NE(all_of(error).find("F7"), std::string::npos) << all_of(error);
  EXPECT_NE(all_of(error).find("a.weight"), std::string::npos);
  EXPECT_NE(all_of(error).find("BF16"), std::string::npos);  // what is known
}

TEST_F(CheckpointFolder, EightBitFloatsAndIntegersAreRead) {
  put("model.safetensors",
      safetensors_bytes(
          R"({"__metadata__":{"format":"pt"},"e":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]},)"
          R"("h":{"dtype":"F16","shape":[1],"data_offsets":[1,3]},)"
          R"("n":{"dtype":"I32","shape":[0,4],"data_offsets":[3,3]},)"
          R"("b":{"dtype":"BOOL","shape":[],"data_offsets":[3,4]}})",
          std::string("\x7e\x00\x3c\x01", 4)));
  const SafetensorsFile file = open_safetensors(folder_ + "/model.safetensors");
  EXPECT_EQ(file.metadata.at("format"), "pt");
  EXPECT_EQ(file.tensors.at("e").dtype(), DType::kE4M3FN);
  EXPECT_EQ(file.tensors.at("h").as<std::uint16_t>()[0], 0x3c00);  // aligned, though the file is not
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.tensors.at("h").data()) % 2, 0u);
  EXPECT_EQ(file.tensors.at("n").size(), 0);
  EXPECT_EQ(file.tensors.at("b").size(), 1);
}

TEST_F(CheckpointFolder, ShardsComeTogetherByTheIndex) {
  put_tensor("a.safetensors", "x");
  put_tensor("b.safetensors", "y");
  put("model.safetensors.index.json",
      R"({"metadata":{"total_size":16},"weight_map":{"x":"a.safetensors","y":"b.safetensors"}})");
  const auto store = open_safetensors_weights(folder_);
  ASSERT_EQ(store->entries().size(), 2u);
  EXPECT_EQ(store->find("y")->file, "b.safetensors");
  EXPECT_EQ(store->bytes(), 16);
  EXPECT_EQ(store->find("z"), nullptr);
  EXPECT_EQ(thrown_by([&] { store->get("z"); }).code(), ErrorCode::kBadFile);
}

TEST_F(CheckpointFolder, AnIndexThatLiesIsFoundOut) {
  struct {
    const char* map;
    const char* word;
  } const cases[] = {
      {R"({"x":"b.safetensors","y":"b.safetensors"})", "it is in a.safetensors"},
      {R"({"x":"a.safetensors","z":"a.safetensors"})", "no shard holds it"},
      {R"({"x":"c.safetensors"})", "c.safetensors is missing"},
      {R"({"x":"../a.safetensors"})", "no file of this folder"},
      {R"({"x":"/etc/passwd"})", "no file of this folder"},
      {R"({"x":7})", "no text"},
      {R"([])", "weight_map"},
  };
  put_tensor("a.safetensors", "x");
  put_tensor("b.safetensors", "y");
  for (const auto& c : cases) {
    put("model.safetensors.index.json", std::string(R"({"weight_map":)") + c.map + "}");
    const Error error = thrown_by([&] { open_safetensors_weights(folder_); });
    EXPECT_EQ(error.code(), ErrorCode::kBadFile);
    EXPECT_NE(all_of(error).find(c.word), std::string::npos) << all_of(error);
  }
}

TEST_F(CheckpointFolder, MissingShardsAreCountedWithoutAnIndex) {
  put_tensor("model-00001-of-00003.safetensors", "x");
  put_tensor("model-00003-of-00003.safetensors", "y");
  EXPECT_NE(
      all_of(thrown_by([&] { open_safetensors_weights(folder_); })).find("one of 3 shards, and 2 are here"),
      std::string::npos);
  put_tensor("model-00002-of-00003.safetensors", "x");
  EXPECT_NE(all_of(thrown_by([&] { open_safetensors_weights(folder_); })).find("'x' is in"),
            std::string::npos);
  put_tensor("model-00002-of-00003.safetensors", "z");
  EXPECT_EQ(open_safetensors_weights(folder_)->entries().size(), 3u);
}

TEST_F(CheckpointFolder, ConfigAndWeightsMustAgree) {
  struct {
    Json change;
    const char* word;
  } const cases[] = {
      {{{"vocab_size", 70}}, "'model.embed_tokens.weight' is [61,32], and by the config it is [70,32]"},
      {{{"num_hidden_layers", 3}}, "'model.layers.2.input_layernorm.weight', and the checkpoint has none"},
      {{{"num_attention_heads", 3}}, "no multiple"},
      {{{"hidden_size", 0}}, "hidden_size"},
      {{{"hidden_size", -4}}, "'hidden_size' is not between 0"},
      {{{"hidden_size", "wide"}}, "'hidden_size' is not a whole number"},
      {{{"num_hidden_layers", 1e30}}, "'num_hidden_layers' is not"},
      {{{"hidden_act", "snake"}}, "'snake'"},
      {{{"rope_parameters", {{"rope_type", "spiral"}}}}, "'spiral'"},
  };
  for (const auto& c : cases) {
    copy_llama(c.change);
    const Error error = thrown_by([&] { build_graph(open_checkpoint(folder_)); });
    EXPECT_TRUE(error.code() == ErrorCode::kBadFile || error.code() == ErrorCode::kUnsupported);
    EXPECT_NE(all_of(error).find(c.word), std::string::npos) << all_of(error);
  }
}

TEST_F(CheckpointFolder, UnknownFamiliesAreComparedWithTheNearest) {
  copy_llama({{"model_type", "lama"}});
  const Error error = thrown_by([&] { build_graph(open_checkpoint(folder_)); });
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  const std::string text = all_of(error);
  for (const char* word : {"'lama'", "Qwen 3", "Gemma 2", "BERT", "the nearest by its weights is Llama"})
    EXPECT_NE(text.find(word), std::string::npos) << text;
  // Qwen 3 has norms of heads that this one lacks.
  const std::string from = source_path("tests/golden/families/qwen3");
  Json config = read_json_file(from + "/config.json");
  config["model_type"] = "qwen9";
  put("config.json", dump(config));
  put("model.safetensors", read_text_file(from + "/model.safetensors", 1 << 20));
  EXPECT_NE(all_of(thrown_by([&] { build_graph(open_checkpoint(folder_)); })).find("is Qwen 3,"),
            std::string::npos);
}

TEST_F(CheckpointFolder, NanWeightsAreNamedAndCounted) {
  copy_llama(Json::object());
  std::string bytes = read_text_file(folder_ + "/model.safetensors", 1 << 20);
  const Tensor tensor =
      open_safetensors(folder_ + "/model.safetensors").tensors.at("model.layers.1.mlp.up_proj.weight");
  const MappedFile mapped(folder_ + "/model.safetensors");
  std::uint64_t header = 0;
  std::memcpy(&header, mapped.bytes().data(), sizeof header);
  const Json entry =
      parse_json(std::string_view(bytes).substr(8, header), "header")["model.layers.1.mlp.up_proj.weight"];
  const std::size_t at = 8 + header + entry["data_offsets"][0].get<std::size_t>();
  for (const std::size_t i : {0, 5, 9}) bytes.replace(at + 2 * i, 2, i == 9 ? "\x80\xff" : "\xc0\x7f");
  put("model.safetensors", bytes);
  const Error error = thrown_by([&] { build_graph(open_checkpoint(folder_)); });
  EXPECT_EQ(error.code(), ErrorCode::kBadFile);
  EXPECT_NE(all_of(error).find("'model.layers.1.mlp.up_proj.weight' has 2 NaN and 1 infinite"),
            std::string::npos)
      << all_of(error);
  const auto found = find_nonfinite(*open_safetensors_weights(folder_));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].nan, 2);
  EXPECT_EQ(found[0].inf, 1);
}

TEST(ModelConfigTest, OldAndNewSpellingsSayTheSame) {
  const Json common = {
      {"model_type", "llama"}, {"vocab_size", 8}, {"hidden_size", 4}, {"num_attention_heads", 2}};
  Json older = common, newer = common;
  older["torch_dtype"] = "bfloat16";
  older["rope_theta"] = 5e5;
  older["rope_scaling"] = {{"type", "llama3"}, {"factor", 8.0}, {"original_max_position_embeddings", 8192}};
  newer["dtype"] = "bfloat16";
  newer["rope_parameters"] = {{"rope_type", "llama3"},
                              {"rope_theta", 5e5},
                              {"factor", 8.0},
                              {"original_max_position_embeddings", 8192}};
  for (const Json& json : {older, newer}) {
    const ModelConfig c = parse_model_config(json, "config.json");
    EXPECT_EQ(c.dtype, "bfloat16");
    EXPECT_EQ(c.rope.theta, 5e5);
    EXPECT_EQ(c.rope.type, "llama3");
    EXPECT_EQ(c.rope.factor, 8);
    EXPECT_EQ(c.rope.original_context, 8192);
    EXPECT_EQ(c.kv_heads, 2);
    EXPECT_EQ(c.head_size, 2);
  }
}

}  // namespace
}  // namespace pare
