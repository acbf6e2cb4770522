// GGUF: block formats against the gguf package, files that lie, and the models and tokenizers in them
// (tests/golden/gguf/make.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "datasets/text/tokenizer.h"
#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "engine/base/sha256.h"
#include "engine/base/thread_pool.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/ggml_encode.h"
#include "engine/run/session.h"
#include "graphsurgeon/checkpoint/safetensors.h"
#include "graphsurgeon/families/family.h"
#include "graphsurgeon/gguf/gguf_model.h"
#include "graphsurgeon/gguf/gguf_write.h"
#include "graphsurgeon/open_checkpoint.h"
#include "tests/unit/test_paths.h"

namespace pare {
namespace {

std::string golden(const std::string& name) { return source_path("tests/golden/gguf/" + name); }

std::vector<std::uint8_t> random_bytes(std::uint64_t state, std::size_t count) {  // splitmix64
  std::vector<std::uint8_t> bytes;
  while (bytes.size() < count) {
    state += 0x9E3779B97F4A7C15;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    z ^= z >> 31;
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<std::uint8_t>(z >> (8 * i)));
  }
  bytes.resize(count);
  return bytes;
}

// tests/golden/gguf/make_encode.py: the gguf package, and ggml's reference for Q4_K.
TEST(GgmlBlocks, FloatsBecomeTheBlocksThatGgmlMakes) {
  const Json want = read_json_file(golden("encoded.json"));
  for (const int code : {2, 3, 8, 12}) {
    const GgmlType& type = *find_ggml_type(code);
    const std::size_t count = 1000 * static_cast<std::size_t>(type.block);
    const std::vector<std::uint8_t> random = random_bytes(11, 2 * count);
    std::vector<float> x(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto number = static_cast<std::int16_t>(random[2 * i] | random[2 * i + 1] << 8);
      x[i] = std::ldexp(static_cast<float>(number), -13);
      if (i / 32 % 10 == 9)
        x[i] = 0;
      else if (i / 32 % 7 == 6)
        x[i] = std::fabs(x[i]);
    }
    std::vector<std::uint8_t> blocks(1000 * static_cast<std::size_t>(type.bytes));
    ggml_encoder(code)(x.data(), blocks.data(), 1000);
    EXPECT_EQ(hex(sha256(std::string_view(reinterpret_cast<const char*>(blocks.data()), blocks.size()))),
              want[type.name].get<std::string>())
        << type.name;
  }
  EXPECT_EQ(ggml_encoder(14), nullptr);
}

// Written by us, read by us: the same model, also with rows of q and k in another order, and its tokenizer.
TEST(GgufWrite, AModelComesBack) {
  const std::string folder = make_temporary_directory();
  ThreadPool pool(2);
  for (const char* family : {"llama", "llama3", "qwen2", "qwen3"}) {
    const std::string from = source_path(std::string("tests/golden/families/") + family);
    const std::string copy = join_path(folder, family);
    make_directories(copy);
    for (const char* name : {"config.json", "model.safetensors"})
      write_file_atomically(join_path(copy, name), read_text_file(join_path(from, name), 1 << 22));
    write_file_atomically(join_path(copy, "tokenizer.json"),
                          R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2},
      "merges": [["a", "b"]]}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
      "decoder": {"type": "ByteLevel"}, "added_tokens": []})");
    const Checkpoint checkpoint = open_checkpoint(copy);
    GgufWriteOptions options;
    options.type = options.embedding = "F32";
    options.pool = &pool;
    const std::string path = join_path(folder, std::string(family) + ".gguf");
    const WrittenGguf written = write_gguf(checkpoint, path, options);
    EXPECT_GT(written.tensors, 10);
    const Checkpoint back = open_checkpoint(path);
    EXPECT_EQ(back.config.vocabulary, checkpoint.config.vocabulary);
    EXPECT_EQ(checkpoint_tokenizer(path).merges.size(), 1u);
    const Tensor ids = Tensor::from<std::int64_t>(DType::kI64, {1, 6}, {1, 5, 2, 9, 3, 4});
    std::vector<Tensor> logits;
    for (const Checkpoint* model : {&checkpoint, &back}) {
      SessionOptions session;
      session.pool = &pool;
      logits.push_back(Session(std::make_shared<const Graph>(build_graph(*model)), session).run({ids})[0]);
    }
    // The same products in the same order, but for pairs that turn in another place: cos and sin of one
    // angle.
    double worst = 0;
    for (std::int64_t i = 0; i < logits[0].size(); ++i)
      worst = std::max(worst,
                       std::fabs(static_cast<double>(logits[0].as<float>()[i]) - logits[1].as<float>()[i]));
    EXPECT_LT(worst, 1e-4) << family;
    options.type = "Q8_0";
    options.embedding = "Q8_0";
    write_gguf(checkpoint, path, options);
    EXPECT_LT(file_size(path), file_size(join_path(copy, "model.safetensors")));
  }
  remove_tree(folder);
}

TEST(GgmlBlocks, AThousandBlocksAreThoseOfTheGgufPackage) {
  const std::map<std::string, std::vector<std::size_t>> halves = {
      {"Q4_0", {0}},    {"Q4_1", {0, 2}},   {"Q5_0", {0}},   {"Q5_1", {0, 2}},
      {"Q8_0", {0}},    {"Q2_K", {80, 82}}, {"Q3_K", {108}}, {"Q4_K", {0, 2}},
      {"Q5_K", {0, 2}}, {"Q6_K", {208}},    {"MXFP4", {}}};
  const Json want = read_json_file(golden("blocks.json"));
  int seen = 0;
  for (int code = 0; code < 64; ++code) {
    const GgmlType* type = find_ggml_type(code);
    if (type == nullptr || type->decode == nullptr) continue;
    ++seen;
    const auto size = static_cast<std::size_t>(type->bytes);
    std::vector<std::uint8_t> bytes = random_bytes(7 + static_cast<std::uint64_t>(code), 1000 * size);
    for (std::size_t b = 0; b < 1000; ++b)
      for (const std::size_t at : halves.at(type->name)) bytes[b * size + at + 1] &= 0xBF;
    std::vector<float> values(1000 * static_cast<std::size_t>(type->block));
    type->decode(bytes.data(), values.data(), 1000);
    Sha256 hash;
    hash.update(
        std::string_view(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
    EXPECT_EQ(hex(hash.finish()), want.at(type->name).get<std::string>()) << type->name;
  }
  EXPECT_EQ(seen, static_cast<int>(want.size()));
}

TEST(GgufModel, IsThatOfTransformers) {
  const Checkpoint checkpoint = open_checkpoint(golden("llama3.gguf"));
  EXPECT_TRUE(checkpoint.config.tied);
  EXPECT_TRUE(checkpoint.config.rope.interleaved);
  const auto want = read_safetensors(source_path("tests/golden/families/llama3/expected.safetensors"));
  ThreadPool pool(2);
  SessionOptions options;
  options.pool = &pool;
  Session session(std::make_shared<const Graph>(build_graph(checkpoint)), options);
  const Tensor logits = session.run({want.at("input_ids")})[0];
  const std::int64_t n = 12, v = want.at("prefill").dims()[2], length = logits.dims()[1];
  double worst = 0;
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t i = 0; i < n * v; ++i)
      worst = std::max(worst, std::fabs(static_cast<double>(logits.as<float>()[b * length * v + i]) -
                                        want.at("prefill").as<float>()[b * n * v + i]));
  EXPECT_LT(worst, 1.8e-4);  // families_test.cpp has the derivation
}

// Every architecture: the same weights, bit for bit, as the family's safetensors (q and k of Mixtral lie in
// GGUF's order), and the same logits.
class GgufFamilies : public testing::TestWithParam<const char*> {};

TEST_P(GgufFamilies, AreThoseOfTransformers) {
  const std::string name = GetParam(), folder = source_path("tests/golden/families/" + name);
  Checkpoint checkpoint = open_checkpoint(golden(name + ".gguf"));
  const Checkpoint plain = open_checkpoint(folder);
  ModelConfig& c = checkpoint.config;
  EXPECT_EQ(c.model_type, plain.config.model_type);
  EXPECT_EQ(c.window, plain.config.window);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    EXPECT_EQ(c.is_local(i), plain.config.is_local(i)) << i;
    EXPECT_EQ(c.is_dense(i), plain.config.is_dense(i)) << i;
  }
  EXPECT_EQ(c.experts, plain.config.experts);
  EXPECT_EQ(c.rope.type, plain.config.rope.type);
  std::size_t compared = 0;
  for (const WeightStore::Entry& entry : plain.weights->entries()) {
    if (entry.name == "lm_head.weight" && c.tied) continue;
    ASSERT_NE(checkpoint.weights->find(entry.name), nullptr) << entry.name;
    ++compared;
    const bool turned = name == "mixtral" && (entry.name.find("q_proj") != std::string::npos ||
                                              entry.name.find("k_proj") != std::string::npos);
    if (turned) continue;
    const Tensor a = checkpoint.weights->get(entry.name), b = plain.weights->get(entry.name);
    ASSERT_EQ(a.dims(), b.dims()) << entry.name;
    std::vector<float> x(static_cast<std::size_t>(a.size())), y(x.size());
    decode(a.dtype(), a.data(), x.data(), a.size());
    decode(b.dtype(), b.data(), y.data(), b.size());
    // Gemma's norms went through 1 + w in float32: within half a step of 2, 2^-24.
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(x[i], y[i], name.rfind("gemma", 0) == 0 && b.dims().size() == 1 ? 6e-8 : 0) << entry.name;
  }
  EXPECT_GT(compared, 10u);
  c.query_scale = plain.config.query_scale;  // GGUF has no place for it; the fixtures' is unusual
  const auto want = read_safetensors(folder + "/expected.safetensors");
  ThreadPool pool(2);
  SessionOptions options;
  options.pool = &pool;
  Session session(std::make_shared<const Graph>(build_graph(checkpoint)), options);
  const Tensor &ids = want.at("input_ids"), &prefill = want.at("prefill");
  const std::int64_t n = prefill.dims()[1], v = prefill.dims()[2];
  Tensor front = Tensor::allocate(DType::kI64, {2, n});
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t i = 0; i < n; ++i)
      front.mut<std::int64_t>()[b * n + i] = ids.as<std::int64_t>()[b * ids.dims()[1] + i];
  const Tensor logits = session.run({front})[0];
  double worst = 0;
  for (std::int64_t i = 0; i < 2 * n * v; ++i)
    worst = std::max(worst, std::fabs(static_cast<double>(logits.as<float>()[i]) - prefill.as<float>()[i]));
  EXPECT_LT(worst, 1.8e-4);  // families_test.cpp has the derivation
}

INSTANTIATE_TEST_SUITE_P(Golden, GgufFamilies,
                         testing::Values("qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "mixtral", "gemma",
                                         "gemma2", "gemma3", "gemma3_scaled", "phi3", "phi3_longrope"),
                         [](const auto& test) { return std::string(test.param); });

TEST(GgufTokenizer, IsThatOfTheTokenizersLibrary) {
  for (const char* name :
       {"smollm", "llama2", "llama3", "qwen2", "tekken", "gpt4o", "bert", "unigram_plain"}) {
    const Tokenizer tokenizer(gguf_tokenizer(open_gguf(golden("tokenizer_" + std::string(name) + ".gguf"))));
    for (const Json& c :
         read_json_file(source_path(std::string("tests/golden/tokenizers/") + name + ".cases.json"))) {
      const auto text = c["text"].get<std::string>();
      // The file marks begins of words with this character, so that pieces which have it in them are lost.
      if (std::string(name) == "bert" && text.find("\u2581") != std::string::npos) continue;
      const auto ids = c["ids"].get<std::vector<std::int64_t>>();
      EXPECT_EQ(tokenizer.encode(text), ids) << name << ": " << text;
      EXPECT_EQ(tokenizer.encode(text, true), c["special"].get<std::vector<std::int64_t>>()) << text;
      EXPECT_EQ(tokenizer.decode(ids), c["decoded"].get<std::string>()) << text;
    }
  }
}

// The fields of a small file by hand, so that each can be made wrong.
class Writer {
 public:
  template <typename T>
  Writer& put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Writer& text(const std::string& value) {
    put(static_cast<std::uint64_t>(value.size()));
    bytes_ += value;
    return *this;
  }
  Writer& head(std::uint64_t tensors, std::uint64_t keys, std::uint32_t version = 3) {
    bytes_ += "GGUF";
    return put(version).put(tensors).put(keys);
  }
  Writer& tensor(const std::string& name, std::vector<std::uint64_t> sizes, std::uint32_t type,
                 std::uint64_t offset) {
    text(name).put(static_cast<std::uint32_t>(sizes.size()));
    for (const std::uint64_t size : sizes) put(size);
    return put(type).put(offset);
  }
  Writer& data(std::size_t count) {
    bytes_.resize((bytes_.size() + 31) / 32 * 32 + count, '\1');
    return *this;
  }
  std::string refusal() const {
    try {
      parse_gguf(std::as_bytes(std::span(bytes_)), nullptr, "x.gguf");
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ErrorCode::kBadFile || error.code() == ErrorCode::kUnsupported);
      return std::string(error.what()) + "|" + error.where() + "|" + error.hint();
    }
    return "none";
  }

 private:
  std::string bytes_;
};

TEST(GgufFileTest, WhatLiesIsRefused) {
  const auto has = [](const Writer& writer, const char* word) {
    const std::string text = writer.refusal();
    EXPECT_NE(text.find(word), std::string::npos) << text;
  };
  EXPECT_EQ(Writer().head(1, 0).tensor("a", {32}, 8, 0).data(34).refusal(), "none");
  has(Writer(), "the mark");
  has(Writer().head(0, 0, 1), "version 1");
  has(Writer().head(std::uint64_t{1} << 63, 0), "number of tensors");
  has(Writer().head(0, std::uint64_t{1} << 63), "number of keys");
  has(Writer().head(0, 1).put(std::uint64_t{1} << 63), "a key needs");
  has(Writer().head(0, 1).text("k").put(std::uint32_t{77}), "type 77");
  has(Writer().head(0, 1).text("k").put(std::uint32_t{9}).put(std::uint32_t{4}).put(std::uint64_t{1} << 62),
      "array");
  has(Writer().head(0, 1).text("k").put(std::uint32_t{9}).put(std::uint32_t{9}).put(std::uint64_t{1}),
      "arrays in");
  has(Writer().head(0, 2).text("k").put(std::uint32_t{0}).put('x').text("k").put(std::uint32_t{0}).put('x'),
      "twice");
  has(Writer().head(2, 0).tensor("a", {32}, 8, 0).tensor("a", {32}, 8, 64).data(98), "'a' is there twice");
  has(Writer().head(1, 0).tensor("a", {33}, 8, 0).data(34), "no whole blocks");
  has(Writer().head(1, 0).tensor("a", {32}, 99, 0).data(34), "Q4_K");
  has(Writer().head(1, 0).tensor("a", {32}, 8, 0).data(33), "outside the file");
  has(Writer().head(1, 0).tensor("a", {32}, 8, 31).data(99), "no multiple of 32");
  has(Writer().head(1, 0).tensor("a", {std::uint64_t{1} << 40, std::uint64_t{1} << 40}, 0, 0).data(99),
      "tensor 'a'");
  has(Writer().head(2, 0).tensor("a", {64}, 8, 0).tensor("b", {32}, 8, 32).data(99), "overlap");
  has(Writer().head(0, 1).text("general.alignment").put(std::uint32_t{4}).put(std::uint32_t{7}),
      "no power of two");
}

// SmolLM2 out of a package (models/fetch_packages.py DIR; PARE_PACKAGES=DIR): every recorded tensor and text.
TEST(GgufFileTest, SmolLm2IsAsRecorded) {
  const char* packages = std::getenv("PARE_PACKAGES");
  if (packages == nullptr || !has_shared_files()) GTEST_SKIP() << "PARE_PACKAGES names no folder of packages";
  const std::string path = join_path(packages, "smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
  const Json want = read_json_file(shared_path("expected/packages/smollm2/smollm2.json"));
  const GgufFile file = open_gguf(path);
  ASSERT_EQ(file.tensors.size(), want["tensors"].size());
  for (std::size_t i = 0; i < file.tensors.size(); ++i) {
    const Json& t = want["tensors"][i];
    EXPECT_EQ(file.tensors[i].name, t["name"].get<std::string>());
    EXPECT_EQ(file.tensors[i].type->name, t["type"].get<std::string>());
    EXPECT_EQ(file.tensors[i].dims, t["shape"].get<Dims>());
    EXPECT_EQ(file.tensors[i].bytes.size(), t["bytes"].get<std::size_t>());
    const auto recorded = want["dequantized"]["tensors"].find(file.tensors[i].name);
    if (recorded == want["dequantized"]["tensors"].end()) continue;
    Sha256 hash;
    hash.update(gguf_tensor(file, file.tensors[i]).byte_span());
    EXPECT_EQ(hex(hash.finish()), (*recorded)["sha256"].get<std::string>()) << file.tensors[i].name;
  }
  const Tokenizer tokenizer(gguf_tokenizer(file));
  for (const Json& c : want["encodings"]) {
    const auto ids = c["ids"].get<std::vector<std::int64_t>>();
    EXPECT_EQ(tokenizer.encode(c["text"].get<std::string>()), ids) << c["text"].get<std::string>();
    const std::string back = tokenizer.decode(ids, false);
    EXPECT_EQ(back == c["text"].get<std::string>(), c["decodes_to_text"].get<bool>()) << back;
  }
}

}  // namespace
}  // namespace pare
