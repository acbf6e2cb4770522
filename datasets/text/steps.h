// The steps of a tokenizer before and behind its model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/text/pattern.h"
#include "engine/base/tokenizer_spec.h"

namespace pare {

// Steps whose regular expressions are compiled.
struct CompiledStep {
  TokenizerSpec::Step step;
  std::optional<Pattern> pattern;
};
using CompiledSteps = std::vector<CompiledStep>;

CompiledSteps compile_normalizers(const std::vector<TokenizerSpec::Step>& steps);
CompiledSteps compile_pre_tokenizers(const std::vector<TokenizerSpec::Step>& steps);

// `text` is valid UTF-8 here and below.
std::string normalize(const CompiledSteps& steps, std::string text);

// Words of one piece of text; `first`: nothing stood before it.
std::vector<std::string> pre_tokenize(const CompiledSteps& steps, std::string text, bool first);

std::string decode_pieces(const std::vector<TokenizerSpec::Step>& steps, std::vector<std::string> pieces);

// --- characters

bool is_unicode_space(char32_t c);   // White_Space
bool is_word_character(char32_t c);  // letters, marks, decimal and letter numbers, connecting punctuation
std::string valid_utf8(std::string_view text);  // what is none becomes U+FFFD

// The characters that stand for bytes in byte-level vocabularies (GPT-2): 0x21 to 0x7E, 0xA1 to 0xAC and 0xAE
// to 0xFF are themselves, the others follow from 0x100 on.
std::string bytes_to_characters(std::string_view bytes);
// The reverse; false when a character stands for no byte.
bool characters_to_bytes(std::string_view text, std::string& bytes);

}  // namespace pare
