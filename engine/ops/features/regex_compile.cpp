// A pattern becomes a tree, and the tree states.
#include "engine/ops/features/regex.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/unicode.h"
#include "engine/ops/features/regex_set.h"

namespace pare {
namespace {

constexpr int kMaxRepeat = 1000, kMaxDepth = 250;
constexpr std::size_t kMaxStates = 100'000;

using namespace regex;

struct Flags {
  bool fold = false, dot_all = false, lines = false;
};

struct Tree {
  enum class Kind : std::uint8_t { kEmpty, kSet, kAssert, kJoin, kEither, kRepeat } kind = Kind::kEmpty;
  Set set;
  int assertion = 0;  // Regex::Kind
  int least = 0, most = -1;
  std::vector<Tree> parts;
};

}  // namespace

// Pattern to tree, then tree to states.
class RegexCompiler {
 public:
  explicit RegexCompiler(std::string_view pattern) : pattern_(pattern), rest_(pattern) {}

  void compile(Regex& out) {
    out_ = &out;
    const Tree tree = either(Flags(), 0);
    if (!rest_.empty()) bad("a ) too many");
    const std::int32_t end = add(Regex::Kind::kMatch);
    out.start_ = emit(tree, end);
  }

 private:
  using Kind = Regex::Kind;

  [[noreturn]] void bad(const char* what) const {
    fail(ErrorCode::kBadFile, "regular expression '{}': {}", pattern_, what);
  }
  bool eat(std::string_view text) {
    if (rest_.substr(0, text.size()) != text) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  bool at(char c) const { return !rest_.empty() && rest_[0] == c; }
  char32_t character() {
    if (rest_.empty()) bad("it ends too early");
    return take_character(rest_);
  }

  static Tree set_of(Set set, const Flags& flags) {
    Tree tree;
    tree.kind = Tree::Kind::kSet;
    tree.set = flags.fold ? folded(tidy(std::move(set))) : tidy(std::move(set));
    return tree;
  }
  static Tree assertion(Kind kind) {
    Tree tree;
    tree.kind = Tree::Kind::kAssert;
    tree.assertion = static_cast<int>(kind);
    return tree;
  }

  // Flags of (?i) hold to the end of the group, across |.
  Tree either(Flags flags, int depth) {
    if (depth > kMaxDepth) bad("groups are nested too deeply");
    Tree tree;
    tree.kind = Tree::Kind::kEither;
    do tree.parts.push_back(join(flags, depth));
    while (eat("|"));
    return tree;
  }

  Tree join(Flags& flags, int depth) {
    Tree tree;
    tree.kind = Tree::Kind::kJoin;
    while (!rest_.empty() && !at('|') && !at(')')) {
      if (eat("\\Q")) {
        while (!rest_.empty() && !eat("\\E")) {
          const char32_t c = take_character(rest_);
          tree.parts.push_back(set_of({{c, c}}, flags));
        }
        continue;
      }
      std::optional<Tree> part = atom(flags, depth);
      if (part.has_value()) tree.parts.push_back(repeated(std::move(*part)));
    }
    return tree;
  }

  Tree repeated(Tree part) {
    bool again = false;
    for (;;) {
      int least = 0, most = -1;
      if (eat("*")) {
      } else if (eat("+")) {
        least = 1;
      } else if (eat("?")) {
        most = 1;
      } else if (!bounds(least, most)) {
        return part;
      }
      if (again) bad("a repetition of a repetition");
      again = true;
      eat("?");  // lazy: the same strings match
      Tree tree;
      tree.kind = Tree::Kind::kRepeat;
      tree.least = least, tree.most = most;
      tree.parts.push_back(std::move(part));
      part = std::move(tree);
    }
  }

  // {n}, {n,}, {n,m}; anything else is a brace.
  bool bounds(int& least, int& most) {
    if (!at('{')) return false;
    std::string_view look = rest_.substr(1);
    const auto number = [&](int& value) {
      std::size_t digits = 0;
      value = 0;
      for (; digits < look.size() && look[digits] >= '0' && look[digits] <= '9'; ++digits)
        value = std::min(value * 10 + (look[digits] - '0'), kMaxRepeat + 1);
      look.remove_prefix(digits);
      return digits > 0;
    };
    int low = 0, high = -1;
    if (!number(low)) return false;
    if (!look.empty() && look[0] == ',') {
      look.remove_prefix(1);
      if (!number(high)) high = -1;
    } else {
      high = low;
    }
    if (look.empty() || look[0] != '}') return false;
    if (low > kMaxRepeat || high > kMaxRepeat) bad("a repetition of more than 1000");
    if (high >= 0 && high < low) bad("a repetition whose least is more than its most");
    look.remove_prefix(1);
    rest_ = look;
    least = low, most = high;
    return true;
  }

  // Nothing for (?flags).
  std::optional<Tree> atom(Flags& flags, int depth) {
    if (at('*') || at('+') || at('?')) bad("nothing to repeat");
    if (eat("(")) return group(flags, depth);
    if (eat("[")) return set_of(bracket(flags), Flags());
    if (eat(".")) return set_of(flags.dot_all ? Set{{0, kLast}} : negated({{'\n', '\n'}}), Flags());
    if (eat("^")) return assertion(flags.lines ? Kind::kBeginLine : Kind::kBegin);
    if (eat("$")) return assertion(flags.lines ? Kind::kEndLine : Kind::kEnd);
    if (eat("\\A")) return assertion(Kind::kBegin);
    if (eat("\\z")) return assertion(Kind::kEnd);
    if (eat("\\b")) return assertion(Kind::kWord);
    if (eat("\\B")) return assertion(Kind::kNotWord);
    if (eat("\\")) {
      Set set = escaped();
      const bool one = set.size() == 1 && set[0].first == set[0].second;  // classes have no case
      return set_of(std::move(set), one ? flags : Flags());
    }
    const char32_t c = character();
    return set_of({{c, c}}, flags);
  }

  std::optional<Tree> group(Flags& flags, int depth) {
    Flags inner = flags;
    if (eat("?P<") || eat("?<")) {
      if (at('=') || at('!')) bad("look-behind");
      while (!at('>')) character();
      eat(">");
    } else if (eat("?")) {
      for (bool on = true;;) {
        if (eat(":")) break;
        if (eat(")")) {
          flags = inner;
          return std::nullopt;
        }
        const char32_t c = character();
        if (c == '-' && on)
          on = false;
        else if (c == 'i')
          inner.fold = on;
        else if (c == 's')
          inner.dot_all = on;
        else if (c == 'm')
          inner.lines = on;
        else if (c != 'U')
          bad("an unknown (?...");
      }
    }
    Tree tree = either(inner, depth + 1);
    if (!eat(")")) bad("a ) is missing");
    return tree;
  }

  // Behind a backslash: a class, or one character.
  Set escaped() {
    const char32_t c = character();
    switch (c) {
      case 'd':
        return kDigits;
      case 'D':
        return negated(kDigits);
      case 'w':
        return kWords;
      case 'W':
        return negated(kWords);
      case 's':
        return kSpaces;
      case 'S':
        return negated(kSpaces);
      case 'p':
      case 'P':
        fail(ErrorCode::kUnsupported, "regular expression '{}': classes by Unicode property", pattern_);
      case 'a':
        return {{7, 7}};
      case 'f':
        return {{'\f', '\f'}};
      case 'n':
        return {{'\n', '\n'}};
      case 'r':
        return {{'\r', '\r'}};
      case 't':
        return {{'\t', '\t'}};
      case 'v':
        return {{'\v', '\v'}};
      case 'x':
        return hexadecimal();
      default:
        break;
    }
    if (c == '0' || (c >= '1' && c <= '7' && rest_.size() > 1 && at_octal(0) && at_octal(1))) return octal(c);
    const bool letter = is_word(c) && c != '_';
    if (letter) bad("an unknown escape");
    return {{c, c}};
  }
  bool at_octal(std::size_t i) const { return rest_.size() > i && rest_[i] >= '0' && rest_[i] <= '7'; }
  Set octal(char32_t c) {
    char32_t value = c - '0';
    for (int i = 0; i < 2 && at_octal(0); ++i) value = value * 8 + (character() - '0');
    return {{value, value}};
  }
  Set hexadecimal() {
    const bool braces = eat("{");
    char32_t value = 0;
    int digits = 0;
    for (; braces ? !at('}') : digits < 2; ++digits) {
      const char32_t c = character();
      const char32_t digit = c >= '0' && c <= '9'   ? c - '0'
                             : c >= 'a' && c <= 'f' ? c - 'a' + 10
                             : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                    : 16;
      if (digit > 15) bad("a hexadecimal digit is missing");
      value = value * 16 + digit;
      if (value > kLast) bad("a character above 10FFFF");
    }
    if (digits == 0) bad("a hexadecimal digit is missing");
    if (braces) eat("}");
    return {{value, value}};
  }

  Set bracket(const Flags& flags) {
    const bool inverted = eat("^");
    Set set;
    for (bool first = true; first || !at(']'); first = false) {
      if (eat("[:")) {
        const std::size_t end = rest_.find(":]");
        if (end == std::string_view::npos) bad("a :] is missing");
        std::string_view word = rest_.substr(0, end);
        const bool not_it = !word.empty() && word[0] == '^';
        const std::optional<Set> named = named_class(not_it ? word.substr(1) : word);
        if (!named.has_value()) bad("an unknown [:class:]");
        rest_.remove_prefix(end + 2);
        const Set part = not_it ? negated(*named) : *named;
        set.insert(set.end(), part.begin(), part.end());
        continue;
      }
      Set low = one_of_bracket();
      const bool single = low.size() == 1 && low[0].first == low[0].second;
      if (single && at('-') && rest_.size() > 1 && rest_[1] != ']') {
        eat("-");
        const Set high = one_of_bracket();
        if (high.size() != 1 || high[0].first != high[0].second || high[0].first < low[0].first)
          bad("a range that ends before it begins");
        low[0].second = high[0].first;
      }
      set.insert(set.end(), low.begin(), low.end());
    }
    eat("]");
    if (flags.fold) set = folded(tidy(std::move(set)));
    return inverted ? negated(set) : set;
  }
  Set one_of_bracket() {
    if (rest_.empty()) bad("a ] is missing");
    if (eat("\\")) return escaped();
    const char32_t c = character();
    return {{c, c}};
  }

  // --- states, from the back: emit gives the state to enter so that `next` follows

  std::int32_t add(Kind kind, std::int32_t next = -1, std::int32_t other = -1) {
    if (out_->states_.size() >= kMaxStates) bad("it needs more than 100,000 states");
    out_->states_.push_back({kind, next, other});
    return static_cast<std::int32_t>(out_->states_.size() - 1);
  }

  std::int32_t emit(const Tree& tree, std::int32_t next) {
    switch (tree.kind) {
      case Tree::Kind::kEmpty:
        return next;
      case Tree::Kind::kSet:
        out_->sets_.push_back(tree.set);
        return add(Kind::kSet, next, static_cast<std::int32_t>(out_->sets_.size() - 1));
      case Tree::Kind::kAssert:
        return add(static_cast<Kind>(tree.assertion), next);
      case Tree::Kind::kJoin:
        for (std::size_t i = tree.parts.size(); i-- > 0;) next = emit(tree.parts[i], next);
        return next;
      case Tree::Kind::kEither: {
        std::int32_t way = emit(tree.parts.back(), next);
        for (std::size_t i = tree.parts.size() - 1; i-- > 0;)
          way = add(Kind::kSplit, emit(tree.parts[i], next), way);
        return way;
      }
      case Tree::Kind::kRepeat:
        break;
    }
    const Tree& part = tree.parts[0];
    if (tree.most < 0) {
      const std::int32_t loop = add(Kind::kSplit, -1, next);
      const std::int32_t body = emit(part, loop);
      out_->states_[static_cast<std::size_t>(loop)].next = body;
      next = loop;
    } else {
      std::int32_t after = next;
      for (int i = tree.least; i < tree.most; ++i) after = add(Kind::kSplit, emit(part, after), next);
      next = after;
    }
    for (int i = 0; i < tree.least; ++i) next = emit(part, next);
    return next;
  }

  std::string_view pattern_, rest_;
  Regex* out_ = nullptr;
};

Regex::Regex(std::string_view pattern) { RegexCompiler(pattern).compile(*this); }

}  // namespace pare
