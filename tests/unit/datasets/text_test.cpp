// Windows of text: how they are cut, what is scored, what is refused.
#include <gtest/gtest.h>

#include "datasets/dataset.h"
#include "datasets/text/tokenizer.h"
#include "engine/base/error.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"
#include "graphsurgeon/checkpoint/tokenizer_json.h"
#include "tests/unit/datasets/errors.h"
#include "tests/unit/datasets/temporary.h"
#include "tests/unit/test_paths.h"

namespace pare {
namespace {

std::shared_ptr<const TokenizerSpec> tokenizer_named(const std::string& name) {
  const std::string path = source_path("tests/golden/tokenizers/" + name + ".json");
  return std::make_shared<TokenizerSpec>(parse_tokenizer(read_text_file(path, limits::kMaxJsonBytes), path));
}

const std::vector<InputSpec> kIds = {
    {"input_ids", DType::kI64, Shape({Dim::named("batch"), Dim::named("sequence")})}};

class TextData : public testing::Test {
 protected:
  DatasetSpec spec(const std::string& keys) {
    DatasetSpec result = parse_data_argument(folder_.file("t.txt") + keys);
    result.tokens = tokenizer_named("smollm");
    return result;
  }
  std::vector<std::int64_t> all() const { return Tokenizer(*tokenizer_named("smollm")).encode(text_); }
  void SetUp() override { folder_.write("t.txt", text_); }

  TemporaryFolder folder_;
  std::string text_ =
      "The licence of this text: it may be used, copied and sold.\n\nNobody warrants anything.\n";
};

TEST_F(TextData, WindowsAreCutOutOfTheWhole) {
  const std::vector<std::int64_t> ids = all();
  Dataset data(spec(":window=10"), kIds);
  ASSERT_EQ(data.sample_count(), static_cast<std::int64_t>(ids.size()) / 10);
  EXPECT_TRUE(data.has_tokens());
  const Batch batch = data.read(0, data.sample_count());
  for (std::int64_t i = 0; i < data.sample_count() * 10; ++i) {
    const auto at = static_cast<std::size_t>(i);
    EXPECT_EQ(batch.inputs[0].as<std::int64_t>()[i], ids[at]);
    // Tokens 2 to 10 of each window are scored, each by the place before it.
    EXPECT_EQ(batch.targets.as<std::int64_t>()[i], i % 10 == 9 ? -1 : ids[at + 1]);
  }
}

TEST_F(TextData, NoTokenIsScoredTwiceWhenWindowsOverlap) {
  const std::vector<std::int64_t> ids = all();
  Dataset data(spec(":window=8,stride=3"), kIds);
  std::vector<int> scored(ids.size(), 0);
  for (std::int64_t s = 0; s < data.sample_count(); ++s) {
    const Batch batch = data.read(s, s + 1);
    for (std::int64_t i = 0; i < 8; ++i) {
      const std::int64_t target = batch.targets.as<std::int64_t>()[i];
      if (target < 0) continue;
      const auto at = static_cast<std::size_t>(3 * s + i + 1);
      EXPECT_EQ(target, ids[at]);
      ++scored[at];
    }
  }
  const std::size_t end = static_cast<std::size_t>(3 * (data.sample_count() - 1) + 8);
  for (std::size_t i = 1; i < end; ++i) EXPECT_EQ(scored[i], 1) << i;
  EXPECT_EQ(scored[0], 0);
}

TEST_F(TextData, BeginTokensStandWhereTheyAreAskedFor) {
  const std::vector<std::int64_t> ids = all();
  DatasetSpec every = spec(":window=8,bos=every");
  auto tokens = std::make_shared<TokenizerSpec>(*every.tokens);
  tokens->bos = 0;
  every.tokens = tokens;
  Dataset data(every, kIds);
  const Batch batch = data.read(1, 2);
  EXPECT_EQ(batch.inputs[0].as<std::int64_t>()[0], 0);
  EXPECT_EQ(batch.inputs[0].as<std::int64_t>()[1], ids[7]);
  EXPECT_EQ(batch.targets.as<std::int64_t>()[0], ids[7]);  // has something before it now
  EXPECT_EQ(batch.targets.as<std::int64_t>()[7], -1);
  DatasetSpec begin = spec(":window=8,bos=begin");
  begin.tokens = tokens;
  EXPECT_EQ(Dataset(begin, kIds).read(1, 2).inputs[0].as<std::int64_t>()[0], ids[7]);
  EXPECT_ERROR(Dataset(spec(":window=8,bos=every"), kIds), "names no begin token");
}

TEST_F(TextData, LinesArePaddedAndTheirPaddingIsMarked) {
  DatasetSpec lines = spec(":window=40,join=lines");
  lines.tokens = tokenizer_named("bert");
  const std::vector<InputSpec> model = {kIds[0], {"attention_mask", DType::kI64, kIds[0].shape}};
  Dataset data(lines, model);
  ASSERT_EQ(data.sample_count(), 2);  // the empty line is none
  const Batch batch = data.read(0, 2);
  const auto second = Tokenizer(*lines.tokens).encode("Nobody warrants anything.", true);
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(batch.inputs[0].as<std::int64_t>()[40 + i], i < second.size() ? second[i] : 0);
    EXPECT_EQ(batch.inputs[1].as<std::int64_t>()[40 + i], i < second.size() ? 1 : 0);
    EXPECT_EQ(batch.targets.as<std::int64_t>()[40 + i], i + 1 < second.size() ? second[i + 1] : -1);
  }
}

TEST_F(TextData, EntriesOfJsonLinesAreTexts) {
  folder_.write("d.jsonl", "{\"body\":\"one two\"}\n{\"body\":\"three\\nfour\"}\n");
  DatasetSpec json = spec(":window=4,field=body");
  json.path = folder_.file("d.jsonl");
  const Tokenizer tokenizer(*json.tokens);
  std::vector<std::int64_t> ids = tokenizer.encode("one two");
  for (const std::int64_t id : tokenizer.encode("three\nfour")) ids.push_back(id);
  const Batch batch = Dataset(json, kIds).read(0, 1);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(batch.inputs[0].as<std::int64_t>()[i], ids[i]);
  json.field = "text";
  EXPECT_ERROR(Dataset(json, kIds), "entry 1", "'text' is missing");
}

TEST_F(TextData, EntriesMayBeDialogues) {
  folder_.write("d.jsonl",
                "{\"messages\":[{\"role\":\"user\",\"content\":\"one two\"}]}\n{\"text\":\"three\"}\n"
                "{\"messages\":[{\"role\":\"user\",\"content\":\"four\"},{\"role\":\"assistant\",\"content\":"
                "\"five\"}]}\n");
  auto tokens = std::make_shared<TokenizerSpec>(*tokenizer_named("smollm"));
  tokens->bos = 0;
  tokens->before = {0};
  tokens->special_names = {{"eos_token", "!"}};
  tokens->chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}";
  DatasetSpec lines = spec(":window=30,join=lines,bos=begin");
  lines.path = folder_.file("d.jsonl");
  lines.tokens = tokens;
  const Tokenizer tokenizer(*tokens);
  Dataset data(lines, kIds);
  ASSERT_EQ(data.sample_count(), 3);
  const Batch batch = data.read(0, 3);
  // A dialogue has the special tokens of its template only; a text those of the post-processor.
  const std::vector<std::int64_t> want[] = {tokenizer.encode("<user>one two!"),
                                            tokenizer.encode("three", true),
                                            tokenizer.encode("<user>four!<assistant>five!")};
  for (std::size_t s = 0; s < 3; ++s)
    for (std::size_t i = 0; i < 30; ++i)
      EXPECT_EQ(batch.inputs[0].as<std::int64_t>()[30 * s + i], i < want[s].size() ? want[s][i] : 0)
          << s << " " << i;
  tokens->chat_template = "{{ raise_exception('no') }}";
  EXPECT_ERROR(Dataset(lines, kIds), "entry 1", "refuses these messages: no");
  tokens->chat_template.clear();
  EXPECT_ERROR(Dataset(lines, kIds), "no chat template");
}

TEST_F(TextData, WhatMakesNoWindowIsRefused) {
  EXPECT_ERROR(Dataset(spec(":window=4000"), kIds), "tokens, and one window takes 4000");
  DatasetSpec small = spec(":window=32");
  small.positions = 16;
  EXPECT_ERROR(Dataset(small, kIds), "32 tokens does not fit into the model's 16 positions");
  DatasetSpec narrow = spec(":window=8");
  narrow.vocabulary = 20;
  EXPECT_ERROR(Dataset(narrow, kIds), "the model's embedding has 20 rows");
  DatasetSpec none = spec(":window=8");
  none.tokens = nullptr;
  EXPECT_ERROR(Dataset(none, kIds), "needs a tokenizer", "tokenizer=FOLDER");
  EXPECT_ERROR(Dataset(spec(""), kIds), "how long is a window?");
  EXPECT_ERROR(spec(":join=pages"), "pages");
}

}  // namespace
}  // namespace pare
