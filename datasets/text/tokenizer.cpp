#include "datasets/text/tokenizer.h"

#include <algorithm>
#include <array>

#include "datasets/text/steps.h"
#include "datasets/text/subword.h"
#include "engine/base/unicode.h"

namespace pare {
namespace {

using AddedToken = TokenizerSpec::AddedToken;

// Finds added tokens in a text: leftmost, and the longest of those that begin there.
class AddedTokens {
 public:
  void add(const std::string& text, const AddedToken* token) {
    if (text.empty()) return;
    auto& list = by_byte_[static_cast<unsigned char>(text[0])];
    list.push_back({text, token});
    std::stable_sort(list.begin(), list.end(),
                     [](const Entry& a, const Entry& b) { return a.text.size() > b.text.size(); });
  }

  struct Segment {
    std::string text;
    const AddedToken* token = nullptr;  // then `text` is that of the token
    bool first = false;                 // begins the text
  };

  std::vector<Segment> split(const std::string& text, bool first) const {
    std::vector<Segment> segments;
    std::size_t done = 0;
    const auto plain = [&](std::size_t end) {
      if (end > done) segments.push_back({text.substr(done, end - done), nullptr, first && done == 0});
    };
    for (std::size_t at = 0; at < text.size();) {
      const Entry* hit = match(text, at);
      if (hit == nullptr) {
        ++at;
        continue;
      }
      std::size_t begin = at, end = at + hit->text.size();
      if (hit->token->single_word && (ends_in_word(text.substr(0, begin)) || begins_with_word(text, end))) {
        at = end;
        continue;
      }
      if (hit->token->lstrip) begin = std::max(done, left_of_spaces(text, begin));
      if (hit->token->rstrip) end = right_of_spaces(text, end);
      plain(begin);
      segments.push_back({hit->text, hit->token, false});
      at = done = end;
    }
    plain(text.size());
    return segments;
  }

 private:
  struct Entry {
    std::string text;
    const AddedToken* token;
  };

  const Entry* match(const std::string& text, std::size_t at) const {
    for (const Entry& entry : by_byte_[static_cast<unsigned char>(text[at])])
      if (text.compare(at, entry.text.size(), entry.text) == 0) return &entry;
    return nullptr;
  }
  static bool ends_in_word(const std::string& text) {
    if (text.empty()) return false;
    std::size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    std::string_view last = std::string_view(text).substr(at);
    return is_word_character(take_character(last));
  }
  static bool begins_with_word(const std::string& text, std::size_t at) {
    std::string_view rest = std::string_view(text).substr(at);
    return !rest.empty() && is_word_character(take_character(rest));
  }
  static std::size_t left_of_spaces(const std::string& text, std::size_t begin) {
    while (begin > 0) {
      std::size_t at = begin - 1;
      while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
      std::string_view last = std::string_view(text).substr(at, begin - at);
      if (!is_unicode_space(take_character(last))) break;
      begin = at;
    }
    return begin;
  }
  static std::size_t right_of_spaces(const std::string& text, std::size_t end) {
    std::string_view rest = std::string_view(text).substr(end);
    while (!rest.empty()) {
      std::string_view after = rest;
      if (!is_unicode_space(take_character(after))) break;
      rest = after;
    }
    return text.size() - rest.size();
  }

  std::array<std::vector<Entry>, 256> by_byte_;
};

}  // namespace

struct Tokenizer::Parts {
  TokenizerSpec spec;
  CompiledSteps normalizers, pre_tokenizers;
  PieceIds ids;
  AddedTokens raw, normalized;  // looked for before and after the normalizers
  std::vector<bool> special;    // by id
  std::unique_ptr<Subword> model;
};

Tokenizer::Tokenizer(const TokenizerSpec& spec) {
  auto parts = std::make_unique<Parts>();
  parts->spec = spec;
  const TokenizerSpec& own = parts->spec;
  parts->normalizers = compile_normalizers(own.normalizers);
  parts->pre_tokenizers = compile_pre_tokenizers(own.pre_tokenizers);
  for (std::size_t i = 0; i < own.pieces.size(); ++i)
    if (!own.pieces[i].empty()) parts->ids.emplace(own.pieces[i], static_cast<std::int64_t>(i));
  parts->special.resize(own.pieces.size(), false);
  for (const AddedToken& token : own.added) {
    if (token.normalized)
      parts->normalized.add(normalize(parts->normalizers, token.text), &token);
    else
      parts->raw.add(token.text, &token);
    if (token.special) parts->special[static_cast<std::size_t>(token.id)] = true;
  }
  parts->model = own.model == TokenizerSpec::Model::kBpe         ? make_bpe(own, parts->ids)
                 : own.model == TokenizerSpec::Model::kWordPiece ? make_word_piece(own, parts->ids)
                                                                 : make_unigram(own, parts->ids);
  parts_ = std::move(parts);
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;

std::vector<std::int64_t> Tokenizer::encode(std::string_view text, bool special) const {
  const Parts& p = *parts_;
  std::vector<std::int64_t> ids;
  if (special) ids = p.spec.before;
  // Words come again and again: what a word gave is kept while this text lasts.
  std::unordered_map<std::string, std::vector<std::int64_t>> known;
  const auto words = [&](const std::string& part, bool first) {
    for (std::string& word : pre_tokenize(p.pre_tokenizers, part, first)) {
      const auto found = known.find(word);
      if (found == known.end()) {
        std::vector<std::int64_t> pieces;
        p.model->encode(word, pieces);
        ids.insert(ids.end(), pieces.begin(), pieces.end());
        known.emplace(std::move(word), std::move(pieces));
      } else {
        ids.insert(ids.end(), found->second.begin(), found->second.end());
      }
    }
  };
  for (const auto& outer : p.raw.split(valid_utf8(text), true)) {
    if (outer.token != nullptr) {
      ids.push_back(outer.token->id);
      continue;
    }
    for (const auto& inner : p.normalized.split(normalize(p.normalizers, outer.text), outer.first)) {
      if (inner.token != nullptr)
        ids.push_back(inner.token->id);
      else
        words(inner.text, inner.first);
    }
  }
  if (special) ids.insert(ids.end(), p.spec.after.begin(), p.spec.after.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int64_t> ids, bool skip_special) const {
  std::vector<std::string> pieces;
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= size() || (skip_special && parts_->special[static_cast<std::size_t>(id)])) continue;
    if (!piece(id).empty()) pieces.push_back(piece(id));
  }
  return decode_pieces(parts_->spec.decoders, std::move(pieces));
}

const TokenizerSpec& Tokenizer::spec() const { return parts_->spec; }
std::int64_t Tokenizer::size() const { return static_cast<std::int64_t>(parts_->spec.pieces.size()); }
std::int64_t Tokenizer::find(const std::string& text) const {
  const auto found = parts_->ids.find(text);
  return found == parts_->ids.end() ? -1 : found->second;
}
const std::string& Tokenizer::piece(std::int64_t id) const {
  return parts_->spec.pieces[static_cast<std::size_t>(id)];
}

}  // namespace pare
