// Text files as windows of tokens.
#include <glob.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "datasets/source.h"
#include "datasets/text/chat_template.h"
#include "datasets/text/tokenizer.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"

namespace pare {
namespace {

bool is_text_file(const std::string& name) {
  const std::string extension = file_extension(name);
  return extension == ".txt" || extension == ".jsonl" || extension == ".md";
}

std::vector<std::string> files_of(const std::string& path) {
  std::vector<std::string> files;
  if (is_directory(path)) {
    for (const std::string& name : list_directory(path))
      if (is_text_file(name)) files.push_back(join_path(path, name));
  } else if (path_exists(path) || path.find_first_of("*?[") == std::string::npos) {
    files.push_back(path);
  } else {
    glob_t found{};
    if (glob(path.c_str(), 0, nullptr, &found) == 0)
      files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
  }
  if (files.empty())
    throw make_error(ErrorCode::kUsage, "there is no text at '{}'", path)
        .hint("a .txt or .jsonl file, a folder of them, or a pattern such as 'part_*.txt'");
  return files;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.find_first_not_of(" \t") != std::string_view::npos) lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

struct Text {
  std::string text;
  bool dialogue = false;  // its template has put special tokens where they belong
};

// Dialogues of data are rendered on this day (26 July 2024), so that they are the same every day.
constexpr std::int64_t kDay = 1721952000;

// The text of an entry: that of its field, or its messages by the chat template.
Text text_of_entry(const Json& entry, const DatasetSpec& spec, std::optional<ChatTemplate>& chat,
                   const std::string& where) {
  std::string field = spec.field.empty() ? "text" : spec.field;
  if (spec.field.empty() && entry.is_object() && !entry.contains("text"))
    for (const char* key : {"messages", "conversation"})
      if (entry.contains(key)) field = key;
  const Json& value = json_member(entry, field.c_str(), where);
  if (!value.is_array()) return {json_string(entry, field.c_str(), where), false};
  if (!chat) chat.emplace(*spec.tokens);
  Json dialogue = entry;
  if (field != "messages") dialogue["messages"] = value;
  ChatOptions options;
  options.now = kDay;
  return {with_context(where, [&] { return chat->render(dialogue, options); }), true};
}

// The texts of one file: itself, its lines, or the entries of a .jsonl.
std::vector<Text> texts_of(const std::string& file, const DatasetSpec& spec,
                           std::optional<ChatTemplate>& chat) {
  const std::string text = read_text_file(file, limits::kMaxTextBytes);
  std::vector<Text> texts;
  if (file_extension(file) == ".jsonl") {
    std::size_t number = 0;
    for (const std::string_view line : lines_of(text)) {
      const std::string where = fmt::format("{}: entry {}", file, ++number);
      texts.push_back(text_of_entry(parse_json(line, where), spec, chat, where));
    }
  } else if (spec.join == "lines") {
    for (const std::string_view line : lines_of(text)) texts.push_back({std::string(line), false});
  } else {
    texts.push_back({text, false});
  }
  return texts;
}

class TextSource final : public Source {
 public:
  explicit TextSource(const DatasetSpec& spec) {
    if (spec.tokens == nullptr)
      throw make_error(ErrorCode::kUsage, "text needs a tokenizer, and the model has none with it")
          .at(spec.path)
          .hint("add tokenizer=FOLDER to the data: a checkpoint folder, or a tokenizer.json");
    window_ = spec.window > 0 ? spec.window : std::min<std::int64_t>(spec.positions, kLongestWindow);
    if (window_ == 0)
      throw make_error(ErrorCode::kUsage, "how long is a window? The model does not say what it takes")
          .at(spec.path)
          .hint("add window=512 to the data");
    if (spec.positions > 0 && window_ > spec.positions)
      throw make_error(ErrorCode::kUsage, "a window of {} tokens does not fit into the model's {} positions",
                       window_, spec.positions)
          .at(spec.path)
          .hint(fmt::format("set window={} or less", spec.positions));
    const Tokenizer tokenizer(*spec.tokens);
    if (spec.join == "lines")
      read_lines(spec, tokenizer);
    else
      read_whole(spec, tokenizer);
    check_tokens(spec, tokenizer);
    for (const char* name : {"input_ids", "attention_mask", "token_type_ids"})
      columns_.push_back({name, DType::kI64, {window_}});
    count_ = static_cast<std::int64_t>(windows_.size());
  }

  void gather(int column, std::span<const std::int64_t> rows, std::byte* out, ThreadPool*) const override {
    auto* to = reinterpret_cast<std::int64_t*>(out);
    for (const std::int64_t row : rows) {
      const Window& w = windows_[static_cast<std::size_t>(row)];
      std::fill_n(to, window_, 0);
      if (column == 1) std::fill_n(to, w.count + lead_, 1);
      if (column == 0) {
        if (lead_ > 0) to[0] = bos_;
        std::copy_n(tokens_.data() + w.begin, w.count, to + lead_);
      }
      to += window_;
    }
  }
  std::int64_t tokens_of_row() const override { return window_; }
  void targets(std::int64_t row, std::int64_t* out) const override {
    const Window& w = windows_[static_cast<std::size_t>(row)];
    std::fill_n(out, window_, -1);
    for (std::int64_t i = std::max<std::int64_t>(w.scored, 1 - lead_); i < w.count; ++i)
      out[i + lead_ - 1] = tokens_[static_cast<std::size_t>(w.begin + i)];
  }

 private:
  static constexpr std::int64_t kLongestWindow = 2048;  // when nobody says how long

  struct Window {
    std::int64_t begin, count;  // in tokens_
    std::int64_t scored;        // from this one on; the first of a text has nothing before it
  };

  std::int64_t bos_of(const DatasetSpec& spec) const {
    const std::int64_t bos = spec.tokens->bos >= 0         ? spec.tokens->bos
                             : spec.tokens->before.empty() ? -1
                                                           : spec.tokens->before[0];
    if (bos < 0)
      throw make_error(ErrorCode::kUsage, "bos={}, and the tokenizer names no begin token", spec.bos)
          .at(spec.path)
          .hint("leave bos out");
    return bos;
  }

  void read_whole(const DatasetSpec& spec, const Tokenizer& tokenizer) {
    if (spec.bos == "every") {
      bos_ = bos_of(spec);
      lead_ = 1;
    }
    for (const std::string& file : files_of(spec.path))
      for (const Text& text : texts_of(file, spec, chat_)) {
        if (spec.bos == "begin" && !text.dialogue) tokens_.push_back(bos_of(spec));
        const std::vector<std::int64_t> ids = tokenizer.encode(text.text);
        tokens_.insert(tokens_.end(), ids.begin(), ids.end());
      }
    const auto total = static_cast<std::int64_t>(tokens_.size());
    const std::int64_t length = window_ - lead_;
    const std::int64_t stride = spec.stride > 0 ? std::min(spec.stride, length) : length;
    if (total < length || length < 1)
      throw make_error(ErrorCode::kUsage, "the text has {} tokens, and one window takes {}", total, length)
          .at(spec.path)
          .hint("give more text, or a shorter window=");
    for (std::int64_t begin = 0; begin + length <= total; begin += stride)
      windows_.push_back({begin, length, begin == 0 ? 0 : length - stride});
  }

  void read_lines(const DatasetSpec& spec, const Tokenizer& tokenizer) {
    const bool special = spec.bos != "none";
    const std::vector<std::int64_t> none, &before = special ? spec.tokens->before : none,
                                          &after = special ? spec.tokens->after : none;
    if (static_cast<std::int64_t>(before.size() + after.size()) >= window_)
      throw make_error(ErrorCode::kUsage, "a window of {} has room for special tokens only", window_)
          .hint("raise window");
    for (const std::string& file : files_of(spec.path))
      for (const Text& text : texts_of(file, spec, chat_)) {
        const auto &front = text.dialogue ? none : before, &back = text.dialogue ? none : after;
        const auto room = static_cast<std::size_t>(window_) - front.size() - back.size();
        std::vector<std::int64_t> ids = tokenizer.encode(text.text);
        if (ids.size() > room) ids.resize(room);
        ids.insert(ids.begin(), front.begin(), front.end());
        ids.insert(ids.end(), back.begin(), back.end());
        if (ids.empty()) continue;
        windows_.push_back(
            {static_cast<std::int64_t>(tokens_.size()), static_cast<std::int64_t>(ids.size()), 1});
        tokens_.insert(tokens_.end(), ids.begin(), ids.end());
      }
    if (windows_.empty())
      throw make_error(ErrorCode::kUsage, "there is no text in it")
          .at(spec.path)
          .hint("name a file with text; of jsonl, `field` is the key that holds it");
  }

  void check_tokens(const DatasetSpec& spec, const Tokenizer& tokenizer) const {
    if (spec.vocabulary == 0) return;
    for (const std::int64_t id : tokens_)
      if (id >= spec.vocabulary)
        throw make_error(ErrorCode::kBadFile,
                         "the tokenizer gives token {} ('{}'), and the model's embedding has {} rows", id,
                         tokenizer.piece(id), spec.vocabulary)
            .at(spec.tokens->where)
            .hint("are the tokenizer and the weights of one model?");
  }

  std::int64_t window_ = 0;
  std::optional<ChatTemplate> chat_;  // made for the first dialogue
  std::int64_t lead_ = 0, bos_ = 0;   // lead_ 1: bos_ begins each window
  std::vector<std::int64_t> tokens_;
  std::vector<Window> windows_;
};

}  // namespace

std::unique_ptr<Source> text_source(const DatasetSpec& spec) { return std::make_unique<TextSource>(spec); }

}  // namespace pare
