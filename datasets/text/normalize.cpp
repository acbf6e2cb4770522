#include "datasets/text/steps.h"
#include "datasets/text/unicode_forms.h"
#include "engine/base/error.h"
#include "engine/base/unicode.h"

namespace pare {
namespace {

using Step = TokenizerSpec::Step;

// Rust's per-character mapping: the simple one, but for the one letter whose lower case is two characters.
std::string lower(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const char32_t c = take_character(text);
    if (c == 0x130) {
      out += "i\u0307";
    } else {
      append_utf8(out, lower_case(c));
    }
  }
  return out;
}

// Without nonspacing marks (Mn), as BertNormalizer has it, or without all marks, as StripAccents.
std::string without_marks(std::string_view text, bool all) {
  std::string out;
  while (!text.empty()) {
    const char32_t c = take_character(text);
    const std::string_view category = c < 128 ? "" : unicode_category(c);
    if (category != "Mn" && !(all && category.substr(0, 1) == "M")) append_utf8(out, c);
  }
  return out;
}

std::string strip(const std::string& text, bool left, bool right) {
  std::string_view rest = text;
  while (left && !rest.empty()) {
    std::string_view after = rest;
    if (!is_unicode_space(take_character(after))) break;
    rest = after;
  }
  while (right && !rest.empty()) {
    std::size_t at = rest.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(rest[at]) & 0xC0) == 0x80) --at;
    std::string_view last = rest.substr(at);
    if (!is_unicode_space(take_character(last))) break;
    rest = rest.substr(0, at);
  }
  return std::string(rest);
}

std::string replace(const CompiledStep& compiled, const std::string& text) {
  std::string out;
  std::size_t done = 0;
  const auto add = [&](std::size_t begin, std::size_t end) {
    out.append(text, done, begin - done);
    out += compiled.step.text;
    done = end;
  };
  if (compiled.pattern) {
    for (const auto& match : compiled.pattern->find_all(text)) add(match.first, match.second);
  } else if (!compiled.step.pattern.empty()) {
    const std::string& wanted = compiled.step.pattern;
    for (std::size_t at = 0; (at = text.find(wanted, at)) != std::string::npos; at += wanted.size())
      add(at, at + wanted.size());
  }
  return out.append(text, done, std::string::npos);
}

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

std::string bert(const Step& step, const std::string& text) {
  std::string out;
  for (std::string_view rest = text; !rest.empty();) {
    char32_t c = take_character(rest);
    if (step.clean) {
      const bool space = is_unicode_space(c);
      const bool control = c != '\t' && c != '\n' && c != '\r' && unicode_category(c)[0] == 'C';
      if (c == 0 || c == kReplacement || control) continue;
      if (space) c = ' ';
    }
    const bool apart = step.chinese && is_chinese(c);
    if (apart) out += ' ';
    append_utf8(out, c);
    if (apart) out += ' ';
  }
  if (step.accents) out = without_marks(normal_form(out, NormalForm::kD), false);
  return step.lower ? lower(out) : out;
}

}  // namespace

CompiledSteps compile_normalizers(const std::vector<Step>& steps) {
  CompiledSteps compiled;
  for (const Step& step : steps) {
    CompiledStep one;
    one.step = step;
    if (step.regex) one.pattern.emplace(step.pattern);
    compiled.push_back(std::move(one));
  }
  return compiled;
}

std::string normalize(const CompiledSteps& steps, std::string text) {
  const std::size_t most = 64 * text.size() + 4096;
  for (const CompiledStep& compiled : steps) {
    const Step& step = compiled.step;
    if (text.size() > most)  // steps that double it, one behind the other, would fill any memory
      throw make_error(ErrorCode::kBadFile,
                       "the tokenizer's normalizers make a text more than 64 times as long")
          .hint("is it the tokenizer of this model?");
    if (step.type == "NFC") text = normal_form(text, NormalForm::kC);
    if (step.type == "NFD") text = normal_form(text, NormalForm::kD);
    if (step.type == "NFKC") text = normal_form(text, NormalForm::kKC);
    if (step.type == "NFKD") text = normal_form(text, NormalForm::kKD);
    if (step.type == "Lowercase") text = lower(text);
    if (step.type == "StripAccents") text = without_marks(text, true);
    if (step.type == "Strip") text = strip(text, step.left, step.right);
    if (step.type == "Replace") text = replace(compiled, text);
    if (step.type == "Prepend" && !text.empty()) text = step.text + text;
    if (step.type == "BertNormalizer") text = bert(step, text);
  }
  return text;
}

}  // namespace pare
