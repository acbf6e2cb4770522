// WordPiece: the longest piece that the word begins with, then the longest that the rest begins with, and so
// on.
#include "datasets/text/subword.h"
#include "engine/base/unicode.h"

namespace pare {
namespace {

class WordPiece final : public Subword {
 public:
  WordPiece(const TokenizerSpec& spec, const PieceIds& ids) : spec_(spec), ids_(ids) {}

  void encode(std::string_view word, std::vector<std::int64_t>& out) const override {
    std::vector<std::size_t> ends;  // of its characters
    for (std::string_view rest = word; !rest.empty();) {
      take_character(rest);
      ends.push_back(word.size() - rest.size());
    }
    if (static_cast<std::int64_t>(ends.size()) > spec_.longest_word) {
      out.push_back(spec_.unknown);
      return;
    }
    const std::size_t before = out.size();
    std::string text;
    for (std::size_t begin = 0, first = 0; begin < word.size();) {
      std::size_t last = ends.size();
      for (; last > first; --last) {
        text.assign(begin == 0 ? "" : spec_.word_prefix);
        text += word.substr(begin, ends[last - 1] - begin);
        const auto found = ids_.find(text);
        if (found == ids_.end()) continue;
        out.push_back(found->second);
        break;
      }
      if (last == first) {  // nothing fits: the whole word is unknown
        out.resize(before);
        out.push_back(spec_.unknown);
        return;
      }
      begin = ends[last - 1];
      first = last;
    }
  }

 private:
  const TokenizerSpec& spec_;
  const PieceIds& ids_;
};

}  // namespace

std::unique_ptr<Subword> make_word_piece(const TokenizerSpec& spec, const PieceIds& ids) {
  return std::make_unique<WordPiece>(spec, ids);
}

}  // namespace pare
