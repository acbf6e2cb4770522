// Tokenizers against the tokenizers library: small ones of every kind over awkward texts
// (tests/golden/tokenizers/make.py), and the real ones where they are at hand.
#include <gtest/gtest.h>

#include "datasets/text/tokenizer.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "engine/base/sha256.h"
#include "graphsurgeon/checkpoint/tokenizer_json.h"
#include "tests/unit/test_paths.h"

namespace pare {
namespace {

TokenizerSpec spec_of(const std::string& path) {
  return parse_tokenizer(read_text_file(path, limits::kMaxJsonBytes), path);
}

class Tokenizers : public testing::TestWithParam<const char*> {};

TEST_P(Tokenizers, GiveWhatTheLibraryGives) {
  const std::string base = source_path(std::string("tests/golden/tokenizers/") + GetParam());
  const Tokenizer tokenizer(spec_of(base + ".json"));
  for (const Json& c : read_json_file(base + ".cases.json")) {
    const auto text = c["text"].get<std::string>();
    const auto ids = c["ids"].get<std::vector<std::int64_t>>();
    EXPECT_EQ(tokenizer.encode(text), ids) << text;
    EXPECT_EQ(tokenizer.encode(text, true), c["special"].get<std::vector<std::int64_t>>()) << text;
    EXPECT_EQ(tokenizer.decode(ids), c["decoded"].get<std::string>()) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Tokenizers,
                         testing::Values("byte_level", "roberta", "llama3", "qwen2", "tekken", "gpt4o",
                                         "gemma", "unigram_plain", "smollm", "llama2", "bert", "bert_cased",
                                         "unigram", "unigram_bytes", "words_a", "words_b", "words_c"),
                         [](const auto& test) { return std::string(test.param); });

TEST(Tokenizer, BytesThatAreNoTextAreReplaced) {
  const Tokenizer tokenizer(spec_of(source_path("tests/golden/tokenizers/byte_level.json")));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a\xff\xc3z\xf0\x9f")), "a\uFFFD\uFFFDz\uFFFD\uFFFD");
  EXPECT_EQ(tokenizer.decode(std::vector<std::int64_t>{-1, 1 << 30}), "");
  EXPECT_EQ(tokenizer.find("<|endoftext|>"), 0);
  EXPECT_EQ(tokenizer.find("no such token"), -1);
}

// The whole of valid.txt, token for token: SHA-256 of the numbers as 4 bytes each, printed by make.py.
TEST(Tokenizer, ProseIsThatOfTheLibrary) {
  if (!has_shared_files()) GTEST_SKIP() << "no models beside the checkout";
  struct {
    const char *model, *hash;
    std::size_t count;
  } const cases[] = {
      {"prose-llama", "2c4970b177457e3323b0fd94925f18868bbb2819d7ce0139622d4eb7c96ad803", 43025},
      {"prose-mixtral", "e5bfa11f517bd111cc83117229e3dbeea1bc66f220685ff8ad9230853ed36976", 53169},
  };
  const std::string text = read_text_file(shared_path("data/prose/valid.txt"), 1 << 20);
  for (const auto& c : cases) {
    const Tokenizer tokenizer(read_tokenizer(shared_path(std::string("models/") + c.model)));
    const std::vector<std::int64_t> ids = tokenizer.encode(text);
    EXPECT_EQ(ids.size(), c.count);
    Sha256 hash;
    for (const std::int64_t id : ids) {
      const auto word = static_cast<std::uint32_t>(id);
      hash.update(std::string_view(reinterpret_cast<const char*>(&word), sizeof word));
    }
    EXPECT_EQ(hex(hash.finish()), c.hash);
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
}

TEST(TokenizerFile, WhatItCannotDoIsNamed) {
  const Json good = read_json_file(source_path("tests/golden/tokenizers/byte_level.json"));
  const auto refused = [&](const char* pointer, const Json& value, ErrorCode code, const char* word) {
    Json json = good;
    json[Json::json_pointer(pointer)] = value;
    try {
      Tokenizer(parse_tokenizer(dump(json), "tokenizer.json"));
      ADD_FAILURE() << pointer;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE((error.what() + error.where() + error.hint()).find(word), std::string::npos) << error.what();
    }
  };
  using Code = ErrorCode;
  refused("/normalizer", {{"type", "Rot13"}}, Code::kUnsupported, "'Rot13'");
  refused("/pre_tokenizer", {{"type", "UnicodeScripts"}}, Code::kUnsupported, "'UnicodeScripts'");
  refused("/decoder", {{"type", "CTC"}}, Code::kUnsupported, "'CTC'");
  refused("/post_processor", {{"type", "Other"}}, Code::kUnsupported, "'Other'");
  refused("/model/type", "WordLevel", Code::kUnsupported, "'WordLevel'");
  refused("/model/dropout", 0.1, Code::kUnsupported, "dropout");
  refused("/model/merges", Json::array({Json::array({"a", "nothing like it"})}), Code::kBadFile,
          "nothing like it");
  refused("/model/merges", Json::array({"nospace"}), Code::kBadFile, "nospace");
  refused("/model/merges", Json::array({Json::array({"!", "~"})}), Code::kBadFile, "makes no token");
  refused("/model/vocab", {{"a", 0}, {"b", 0}}, Code::kBadFile, "the id 0");
  refused("/model/vocab", {{"a", -1}}, Code::kBadFile, "out of range");
  refused("/model/vocab", {{"a", std::int64_t{1} << 40}}, Code::kBadFile, "out of range");
  refused(
      "/pre_tokenizer",
      {{"type", "Split"}, {"pattern", {{"Regex", "(unclosed"}}}, {"behavior", "Isolated"}, {"invert", false}},
      Code::kBadFile, "(unclosed");
  refused("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"String", "x"}}}, {"behavior", "Shuffled"}},
          Code::kUnsupported, "Shuffled");
}

}  // namespace
}  // namespace pare
