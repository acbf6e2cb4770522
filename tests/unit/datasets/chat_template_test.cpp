// Chat templates against transformers (tests/golden/chat/make.py), what is refused and how, and that
// templates cannot run away.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "datasets/text/chat_template.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "tests/unit/datasets/errors.h"
#include "tests/unit/test_paths.h"

namespace pare {
namespace {

using Tokens = std::vector<std::pair<std::string, std::string>>;

Json with_tools(const Json& dialogue) {
  Json json = {{"messages", dialogue["messages"]}};
  if (dialogue.contains("tools")) json["tools"] = dialogue["tools"];
  return json;
}

// Every template of `folder`, every dialogue: the same bytes, or an error where transformers has one. With
// `beyond_ours`, templates may use what is not known here.
void agree(const std::string& folder, bool beyond_ours = false) {
  const Json cases = read_json_file(join_path(folder, "cases.json"));
  Tokens tokens;
  for (const auto& [name, text] : cases["tokens"].items()) tokens.emplace_back(name, text.get<std::string>());
  int compared = 0;
  for (const auto& [file, texts] : cases["texts"].items()) {
    const std::string source = read_text_file(join_path(folder, file), limits::kMaxRecipeBytes);
    for (const auto& [name, want] : texts.items()) {
      SCOPED_TRACE(file + ": " + name);
      const Json& dialogue = cases["dialogues"][name];
      ChatOptions options;
      options.generation_prompt = dialogue.contains("generation_prompt");
      options.now = cases["now"].get<std::int64_t>();
      try {
        const ChatTemplate chat(source, file, tokens);
        const std::string got = chat.render(with_tools(dialogue), options);
        EXPECT_FALSE(want.is_null()) << got;
        if (!want.is_null()) {
          EXPECT_EQ(got, want.get<std::string>());
        }
        ++compared;
      } catch (const Error& error) {
        if (beyond_ours && error.code() == ErrorCode::kUnsupported) {
          std::printf("%s, %s: %s at %s\n", file.c_str(), name.c_str(), error.what(), error.where().c_str());
          continue;
        }
        EXPECT_EQ(error.code(), ErrorCode::kUsage) << error.what();
        EXPECT_NE(error.where().find("line "), std::string::npos) << error.where();
        EXPECT_TRUE(want.is_null()) << error.what() << " at " << error.where();
      }
    }
  }
  EXPECT_GT(compared, 0);
}

TEST(ChatTemplates, RenderWhatTransformersRenders) { agree(source_path("tests/golden/chat")); }

// More templates than those of the tree: make.py FOLDER, then PARE_CHAT_TEMPLATES=FOLDER.
TEST(ChatTemplates, OthersToo) {
  const char* folder = std::getenv("PARE_CHAT_TEMPLATES");
  if (folder == nullptr) GTEST_SKIP() << "PARE_CHAT_TEMPLATES names no folder of templates";
  agree(folder, true);
}

const Json kHello = Json::array({{{"role", "user"}, {"content", "Hello"}}});

std::string rendered(const std::string& source) {
  return ChatTemplate(source, "t.jinja", {}).render(kHello, {});
}

// Corners of the language, each as transformers prints it.
TEST(ChatTemplates, TheLanguageIsJinjas) {
  const Json cases = read_json_file(source_path("tests/golden/chat/cases.json"));
  for (const Json& c : cases["corners"]) {
    const auto source = c["source"].get<std::string>();
    try {
      EXPECT_EQ(rendered(source), c["text"].get<std::string>()) << source;
    } catch (const Error& error) {
      ADD_FAILURE() << source << ": " << error.what();
    }
  }
}

TEST(ChatTemplates, WhatIsRefusedIsNamedWithItsLine) {
  using Code = ErrorCode;
  struct {
    const char* source;
    Code code;
    const char *word, *line;
  } const cases[] = {
      {"\n\n{% include 'x' %}", Code::kUnsupported, "'include'", "line 3"},
      {"{% call f() %}{% endcall %}", Code::kUnsupported, "'call'", "line 1"},
      {"a\n{{ 1 | pprint }}", Code::kUnsupported, "filter 'pprint'", "line 2"},
      {"{{ 1 is filter }}", Code::kUnsupported, "test 'filter'", "line 1"},
      {"{{ 'x'.zfill(3) }}", Code::kUnsupported, "method 'zfill'", "line 1"},
      {"{{ [].append(1) }}", Code::kUnsupported, "'append'", "line 1"},
      {"{{ cycler(1) }}", Code::kUnsupported, "'cycler'", "line 1"},
      {"{% for x in messages recursive %}{% endfor %}", Code::kUnsupported, "recursive", "line 1"},
      {"{{ f(*x) }}", Code::kUnsupported, "out of a list", "line 1"},
      {"{{ '%s' % 1 }}", Code::kUnsupported, "formatting", "line 1"},
      {"{{ 99999999999999999999 }}", Code::kUnsupported, "64 bits", "line 1"},
      {"{{ 9223372036854775807 + 1 }}", Code::kUnsupported, "64 bits", "line 1"},
      {"{{ strftime_now('%Y') }}", Code::kUsage, "'strftime_now' is undefined", "line 1"},
      {"\n{{ raise_exception('no roles') }}", Code::kUsage, "no roles", "line 2"},
      {"{{ 'a' + 1 }}", Code::kUsage, "str and int", "line 1"},
      {"{{ nothing.x }}", Code::kUsage, "'nothing' is undefined", "line 1"},
      {"{{ nothing() }}", Code::kUsage, "it is called", "line 1"},
      {"{{ 1 / 0 }}", Code::kUsage, "division", "line 1"},
      {"{% if x %}", Code::kBadFile, "'endif' is missing", "line 1"},
      {"{% endif %}", Code::kBadFile, "ends nothing", "line 1"},
      {"{{ 'x }}", Code::kBadFile, "does not end", "line 1"},
      {"{{ 1 +* }}", Code::kBadFile, "'*'", "line 1"},
      {"{{ ) }}", Code::kBadFile, "closes nothing", "line 1"},
      {"{# x", Code::kBadFile, "comment", "line 1"},
      {"{% set = 1 %}", Code::kBadFile, "a name is missing", "line 1"},
      {"{% break %}", Code::kBadFile, "outside of a loop", "line 1"},
  };
  for (const auto& c : cases) {
    try {
      ADD_FAILURE() << c.source << " gives " << rendered(c.source);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), c.code) << c.source << ": " << error.what();
      EXPECT_NE(std::string(error.what()).find(c.word), std::string::npos)
          << c.source << ": " << error.what();
      EXPECT_EQ(error.where(), std::string("t.jinja: ") + c.line) << c.source;
    }
  }
}

TEST(ChatTemplates, CannotRunAway) {
  const auto times = [](const std::string& part, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += part;
    return text;
  };
  const std::string loops = times("{% for i in range(100000) %}", 4) + "x" + times("{% endfor %}", 4);
  EXPECT_ERROR(rendered(loops), "too many steps");
  EXPECT_ERROR(
      rendered(
          "{% set n = namespace(x='ab') %}{% for i in range(100) %}{% set n.x = n.x + n.x %}{% endfor %}"),
      "too many steps");
  EXPECT_ERROR(rendered("{{ 'abcd' * 1000000000 }}"), "16 MiB");
  EXPECT_ERROR(rendered("{{ range(1000000) | list }}"), "ranges of more than");
  EXPECT_ERROR(rendered("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), "too deeply");
  EXPECT_ERROR(rendered("{{ " + times("(", 5000) + times(")", 5000) + " }}"), "nested too deeply");
  EXPECT_ERROR(rendered("{{ 1" + times(" + 1", 5000) + " }}"), "nested too deeply");
  EXPECT_ERROR(rendered(times("{% if x %}", 5000)), "nested too deeply");
  EXPECT_ERROR(rendered("{{ " + times("not ", 5000) + "x }}"), "nested too deeply");
  // A namespace that holds itself is let go of.
  EXPECT_EQ(rendered("{% set n = namespace() %}{% set n.n = n %}{{ n.n.n is defined }}"), "True");
}

TEST(ChatTemplates, MessagesAreChecked) {
  const ChatTemplate chat("{{ messages | length }}{{ mood }}", "t", {});
  EXPECT_EQ(chat.render({{"messages", kHello}, {"mood", "calm"}}, {}), "1calm");
  EXPECT_ERROR(chat.render(Json::array(), {}), "no messages");
  EXPECT_ERROR(chat.render("text", {}), "no messages");
  EXPECT_ERROR(chat.render(Json::array({"text"}), {}), "message 1");
  TokenizerSpec none;
  none.where = "folder/tokenizer.json";
  EXPECT_ERROR(ChatTemplate{none}, "no chat template");
}

}  // namespace
}  // namespace pare
