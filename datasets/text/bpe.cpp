// Byte pair encoding: the characters of a word, of which the pair of the lowest rank is joined until none is
// left.
#include <queue>

#include "datasets/text/subword.h"
#include "engine/base/unicode.h"

namespace pare {
namespace {

struct Merge {
  std::int64_t rank, id;
};

std::uint64_t pair_key(std::int64_t a, std::int64_t b) {
  return static_cast<std::uint64_t>(a) << 32 | static_cast<std::uint64_t>(b);
}

class Bpe final : public Subword {
 public:
  Bpe(const TokenizerSpec& spec, const PieceIds& ids) : spec_(spec), ids_(ids), bytes_(byte_pieces(ids)) {
    const std::string& prefix = spec.word_prefix;
    for (std::size_t i = 0; i < spec.merges.size(); ++i) {
      const auto [a, b] = spec.merges[i];
      std::string right = spec.pieces[static_cast<std::size_t>(b)];
      if (!prefix.empty() && right.rfind(prefix, 0) == 0) right = right.substr(prefix.size());
      const auto joined = ids.find(spec.pieces[static_cast<std::size_t>(a)] + right);
      if (joined == ids.end()) continue;
      merges_[pair_key(a, b)] = {static_cast<std::int64_t>(i),
                                 joined->second};  // a pair given twice: the last
    }
  }

  void encode(std::string_view word, std::vector<std::int64_t>& out) const override {
    if (spec_.ignore_merges) {
      const auto whole = ids_.find(word);
      if (whole != ids_.end()) {
        out.push_back(whole->second);
        return;
      }
    }
    std::vector<Symbol> symbols = characters(word);
    join(symbols);
    for (const Symbol& symbol : symbols)
      if (symbol.id >= 0) out.push_back(symbol.id);
  }

 private:
  struct Symbol {
    std::int64_t id;  // -1: joined to the one before
    int previous, next;
  };

  std::vector<Symbol> characters(std::string_view word) const {
    std::vector<std::int64_t> list;
    bool unknown = false;  // the last character was the unknown token
    std::string text;
    for (std::string_view rest = word; !rest.empty();) {
      const bool first = rest.size() == word.size();
      const std::string_view before = rest;
      take_character(rest);
      const std::string_view character = before.substr(0, before.size() - rest.size());
      text.assign(first ? "" : spec_.word_prefix);
      text += character;
      if (rest.empty()) text += spec_.word_suffix;
      const auto found = ids_.find(text);
      if (found != ids_.end()) {
        list.push_back(found->second);
        unknown = false;
      } else if (spec_.byte_fallback && add_bytes(text, list)) {
        continue;  // as the library has it: unknown characters on both sides are still neighbours
      } else if (spec_.unknown >= 0) {
        if (!unknown || !spec_.fuse_unknown) list.push_back(spec_.unknown);
        unknown = true;
      }
    }
    std::vector<Symbol> symbols;
    const int count = static_cast<int>(list.size());
    for (int i = 0; i < count; ++i)
      symbols.push_back({list[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
    return symbols;
  }

  bool add_bytes(const std::string& text, std::vector<std::int64_t>& list) const {
    for (const char c : text)
      if (bytes_[static_cast<unsigned char>(c)] < 0) return false;
    for (const char c : text) list.push_back(bytes_[static_cast<unsigned char>(c)]);
    return true;
  }

  struct Candidate {
    std::int64_t rank;
    int at;
    std::int64_t id;
    bool operator<(const Candidate& other) const {  // the queue's top: lowest rank, then leftmost
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };

  const Merge* merge_at(const std::vector<Symbol>& symbols, int at) const {
    if (at < 0) return nullptr;
    const Symbol& left = symbols[static_cast<std::size_t>(at)];
    if (left.id < 0 || left.next < 0) return nullptr;
    const auto found = merges_.find(pair_key(left.id, symbols[static_cast<std::size_t>(left.next)].id));
    return found == merges_.end() ? nullptr : &found->second;
  }

  void join(std::vector<Symbol>& symbols) const {
    std::priority_queue<Candidate> queue;
    const auto offer = [&](int at) {
      if (const Merge* merge = merge_at(symbols, at)) queue.push({merge->rank, at, merge->id});
    };
    for (int i = 0; i + 1 < static_cast<int>(symbols.size()); ++i) offer(i);
    while (!queue.empty()) {
      const Candidate best = queue.top();
      queue.pop();
      const Merge* now = merge_at(symbols, best.at);  // the pair may have changed since
      if (now == nullptr || now->id != best.id || now->rank != best.rank) continue;
      Symbol& left = symbols[static_cast<std::size_t>(best.at)];
      Symbol& right = symbols[static_cast<std::size_t>(left.next)];
      left.id = best.id;
      left.next = right.next;
      right.id = -1;
      if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = best.at;
      offer(left.previous);
      offer(best.at);
    }
  }

  const TokenizerSpec& spec_;
  const PieceIds& ids_;
  std::vector<std::int64_t> bytes_;
  std::unordered_map<std::uint64_t, Merge> merges_;
};

}  // namespace

std::vector<std::int64_t> byte_pieces(const PieceIds& ids) {
  std::vector<std::int64_t> list;
  for (int byte = 0; byte < 256; ++byte) {
    constexpr const char* kDigits = "0123456789ABCDEF";
    const auto found = ids.find(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">");
    list.push_back(found == ids.end() ? -1 : found->second);
  }
  return list;
}

std::unique_ptr<Subword> make_bpe(const TokenizerSpec& spec, const PieceIds& ids) {
  return std::make_unique<Bpe>(spec, ids);
}

}  // namespace pare
