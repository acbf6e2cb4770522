// Text into token numbers and back, as the tokenizers library does it (github.com/huggingface/tokenizers):
// added tokens are cut out first, what is between them is normalized, cut into words, and each word into
// pieces.
//
// The same text gives the same tokens in any order and on any thread: encode() and decode() change nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/tokenizer_spec.h"

namespace pare {

class Tokenizer {
 public:
  // Errors: kBadFile for a regular expression that is none, kUnsupported where this build lacks PCRE2 or
  // utf8proc and a step needs them.
  explicit Tokenizer(const TokenizerSpec& spec);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;

  // Bytes that are no UTF-8 count as U+FFFD. With `special`, the tokens that the post-processor puts around a
  // text are there. A character without a token is the unknown token, or nothing where the model has none.
  std::vector<std::int64_t> encode(std::string_view text, bool special = false) const;
  // Bytes of tokens that make no UTF-8 become U+FFFD. Numbers without a token give nothing.
  std::string decode(std::span<const std::int64_t> ids, bool skip_special = true) const;

  const TokenizerSpec& spec() const;
  std::int64_t size() const;                          // the largest number + 1
  std::int64_t find(const std::string& piece) const;  // -1: there is no such token
  const std::string& piece(std::int64_t id) const;    // as the file has it; "" when there is none

 private:
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

}  // namespace pare
