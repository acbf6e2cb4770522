// Unigram: the cut of a word whose pieces have the largest sum of scores (Viterbi).
#include <algorithm>
#include <limits>

#include "datasets/text/subword.h"
#include "engine/base/unicode.h"

namespace pare {
namespace {

constexpr double kUnknownPenalty = 10;  // below the lowest score of any piece

class Unigram final : public Subword {
 public:
  Unigram(const TokenizerSpec& spec, const PieceIds& ids) : spec_(spec), ids_(ids), bytes_(byte_pieces(ids)) {
    for (std::size_t i = 0; i < spec.scores.size(); ++i) {
      longest_ = std::max(longest_, spec.pieces[i].size());
      lowest_ = std::min(lowest_, spec.scores[i]);
    }
  }

  void encode(std::string_view word, std::vector<std::int64_t>& out) const override {
    struct Best {
      double score = -std::numeric_limits<double>::infinity();
      std::size_t begin = 0;
      std::int64_t id = -1;  // -1: unknown
    };
    std::vector<Best> best(word.size() + 1);  // of cuts that end here
    best[0].score = 0;
    for (std::string_view rest = word; !rest.empty();) {
      const std::size_t begin = word.size() - rest.size();
      take_character(rest);
      const std::size_t next = word.size() - rest.size();
      bool single = false;
      for (std::size_t end = next; end <= word.size() && end - begin <= longest_; ++end) {
        if (end < word.size() && (static_cast<unsigned char>(word[end]) & 0xC0) == 0x80) continue;
        const auto found = ids_.find(word.substr(begin, end - begin));
        if (found == ids_.end() || found->second >= static_cast<std::int64_t>(spec_.scores.size())) continue;
        single = single || end == next;
        const double score = best[begin].score + spec_.scores[static_cast<std::size_t>(found->second)];
        if (score > best[end].score) best[end] = {score, begin, found->second};
      }
      const double score = best[begin].score + lowest_ - kUnknownPenalty;
      if (!single && score > best[next].score) best[next] = {score, begin, -1};
    }
    std::vector<std::pair<std::size_t, std::size_t>> cuts;  // from the end
    for (std::size_t end = word.size(); end > 0; end = best[end].begin)
      cuts.emplace_back(best[end].begin, end);
    bool unknown = false;
    for (std::size_t i = cuts.size(); i-- > 0;) {
      const Best& piece = best[cuts[i].second];
      if (piece.id < 0) {
        add_unknown(word.substr(cuts[i].first, cuts[i].second - cuts[i].first), unknown, out);
        unknown = true;
        continue;
      }
      out.push_back(piece.id);
      unknown = false;
    }
  }

 private:
  void add_unknown(std::string_view text, bool behind_unknown, std::vector<std::int64_t>& out) const {
    if (spec_.byte_fallback && std::all_of(text.begin(), text.end(), [&](char c) {
          return bytes_[static_cast<unsigned char>(c)] >= 0;
        })) {
      for (const char c : text) out.push_back(bytes_[static_cast<unsigned char>(c)]);
    } else if (spec_.unknown >= 0 && !behind_unknown) {
      out.push_back(spec_.unknown);
    }
  }

  const TokenizerSpec& spec_;
  const PieceIds& ids_;
  std::vector<std::int64_t> bytes_;
  std::size_t longest_ = 0;
  double lowest_ = 0;
};

}  // namespace

std::unique_ptr<Subword> make_unigram(const TokenizerSpec& spec, const PieceIds& ids) {
  return std::make_unique<Unigram>(spec, ids);
}

}  // namespace pare
