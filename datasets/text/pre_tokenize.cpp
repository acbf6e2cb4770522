#include <functional>

#include "datasets/text/steps.h"
#include "datasets/text/unicode_forms.h"
#include "engine/base/unicode.h"

namespace pare {
namespace {

using Step = TokenizerSpec::Step;
using Ranges = std::vector<std::pair<std::size_t, std::size_t>>;

// GPT-2's words. Source: openai/gpt-2, encoder.py.
constexpr const char* kByteLevelWords =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// \w+|[^\w\s]+ with \w as Rust has it.
constexpr const char* kWhitespaceWords =
    R"([\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}]+|[^\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\s]+)";

struct Part {
  std::size_t begin, end;
  bool match;
};

// What `behavior` makes of the matches and of what is between them.
std::vector<std::string> cut(const std::string& text, const Ranges& matches, const std::string& behavior,
                             bool invert) {
  std::vector<Part> parts;
  std::size_t at = 0;
  for (const auto& m : matches) {
    if (m.first > at) parts.push_back({at, m.first, invert});
    parts.push_back({m.first, m.second, !invert});
    at = m.second;
  }
  if (at < text.size()) parts.push_back({at, text.size(), invert});
  std::vector<Part> kept;
  if (behavior == "MergedWithNext") {
    bool before = false;
    for (std::size_t i = parts.size(); i-- > 0;) {
      if (parts[i].match && !before && !kept.empty())
        kept.back().begin = parts[i].begin;
      else
        kept.push_back(parts[i]);
      before = parts[i].match;
    }
    kept = {kept.rbegin(), kept.rend()};
  } else {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool before = i > 0 && parts[i - 1].match;
      const bool joins = behavior == "MergedWithPrevious" ? parts[i].match && !before
                         : behavior == "Contiguous"       ? i > 0 && parts[i].match == before
                                                          : false;
      if (behavior == "Removed" && parts[i].match) continue;
      if (joins && !kept.empty())
        kept.back().end = parts[i].end;
      else
        kept.push_back(parts[i]);
    }
  }
  std::vector<std::string> words;
  for (const Part& part : kept) words.push_back(text.substr(part.begin, part.end - part.begin));
  return words;
}

// Each character that `wanted` holds for is a match.
Ranges characters(const std::string& text, const std::function<bool(char32_t)>& wanted) {
  Ranges found;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t begin = text.size() - rest.size();
    if (wanted(take_character(rest))) found.emplace_back(begin, text.size() - rest.size());
  }
  return found;
}

bool is_punctuation(char32_t c) {
  if (c < 128)
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  return unicode_category(c)[0] == 'P';
}
bool is_numeric(char32_t c) { return c < 128 ? c >= '0' && c <= '9' : unicode_category(c)[0] == 'N'; }

Ranges occurrences(const std::string& text, const std::string& wanted) {
  Ranges found;
  if (wanted.empty()) return found;
  for (std::size_t at = 0; (at = text.find(wanted, at)) != std::string::npos; at += wanted.size())
    found.emplace_back(at, at + wanted.size());
  return found;
}

std::vector<std::string> metaspace(const Step& step, const std::string& text, bool first) {
  std::string marked;
  for (const char c : text) marked += c == ' ' ? step.text : std::string(1, c);
  const bool prepend = step.behavior == "always" || (step.behavior == "first" && first);
  if (prepend && marked.rfind(step.text, 0) != 0) marked = step.text + marked;
  if (!step.split) return {marked};
  return cut(marked, occurrences(marked, step.text), "MergedWithNext", false);
}

std::vector<std::string> words_of(const CompiledStep& compiled, std::string text, bool first) {
  const Step& step = compiled.step;
  if (step.type == "ByteLevel") {
    if (step.add_prefix_space && text[0] != ' ') text = " " + text;
    std::vector<std::string> words =
        compiled.pattern ? cut(text, compiled.pattern->find_all(text), "Isolated", false) : std::vector{text};
    for (std::string& word : words) word = bytes_to_characters(word);
    return words;
  }
  if (step.type == "Split")
    return cut(text, compiled.pattern ? compiled.pattern->find_all(text) : occurrences(text, step.pattern),
               step.behavior, step.invert);
  if (step.type == "CharDelimiterSplit") return cut(text, occurrences(text, step.pattern), "Removed", false);
  if (step.type == "Metaspace") return metaspace(step, text, first);
  if (step.type == "Whitespace") return cut(text, compiled.pattern->find_all(text), "Removed", true);
  if (step.type == "WhitespaceSplit") return cut(text, characters(text, is_unicode_space), "Removed", false);
  if (step.type == "Digits")
    return cut(text, characters(text, is_numeric), step.individual ? "Isolated" : "Contiguous", false);
  if (step.type == "Punctuation") return cut(text, characters(text, is_punctuation), step.behavior, false);
  // BertPreTokenizer
  std::vector<std::string> words;
  for (const std::string& word : cut(text, characters(text, is_unicode_space), "Removed", false))
    for (std::string& part : cut(word, characters(word, is_punctuation), "Isolated", false))
      words.push_back(std::move(part));
  return words;
}

}  // namespace

CompiledSteps compile_pre_tokenizers(const std::vector<Step>& steps) {
  CompiledSteps compiled = compile_normalizers(steps);
  for (CompiledStep& one : compiled) {
    if (one.step.type == "ByteLevel" && one.step.use_regex) one.pattern.emplace(kByteLevelWords);
    if (one.step.type == "Whitespace") one.pattern.emplace(kWhitespaceWords);
  }
  return compiled;
}

std::vector<std::string> pre_tokenize(const CompiledSteps& steps, std::string text, bool first) {
  std::vector<std::string> words;
  if (text.empty()) return words;
  words.push_back(std::move(text));
  for (const CompiledStep& step : steps) {
    std::vector<std::string> next;
    for (std::size_t i = 0; i < words.size(); ++i)
      for (std::string& word : words_of(step, std::move(words[i]), first && i == 0))
        if (!word.empty()) next.push_back(std::move(word));
    words = std::move(next);
  }
  return words;
}

}  // namespace pare
