// Words into pieces: the model of a tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/base/tokenizer_spec.h"

namespace pare {

struct PieceHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
using PieceIds = std::unordered_map<std::string, std::int64_t, PieceHash, std::equal_to<>>;

class Subword {
 public:
  virtual ~Subword() = default;
  // Appends the pieces of a word that is not empty.
  virtual void encode(std::string_view word, std::vector<std::int64_t>& ids) const = 0;
};

// `ids` outlives the model; both live in the Tokenizer.
std::unique_ptr<Subword> make_bpe(const TokenizerSpec& spec, const PieceIds& ids);
std::unique_ptr<Subword> make_word_piece(const TokenizerSpec& spec, const PieceIds& ids);
std::unique_ptr<Subword> make_unigram(const TokenizerSpec& spec, const PieceIds& ids);

// Numbers of <0x00> ... <0xFF> by byte; -1 where there is none.
std::vector<std::int64_t> byte_pieces(const PieceIds& ids);

}  // namespace pare
