#include "engine/ops/features/regex.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/unicode.h"

namespace pare {
namespace {

constexpr char32_t kLast = 0x10FFFF;
constexpr int kMaxRepeat = 1000, kMaxDepth = 250;
constexpr std::size_t kMaxStates = 100'000;

using Set = std::vector<std::pair<char32_t, char32_t>>;

Set tidy(Set set) {
  std::sort(set.begin(), set.end());
  Set out;
  for (const auto& range : set) {
    if (!out.empty() && range.first <= out.back().second + 1)
      out.back().second = std::max(out.back().second, range.second);
    else
      out.push_back(range);
  }
  return out;
}

Set negated(const Set& set) {
  Set out;
  char32_t from = 0;
  for (const auto& range : tidy(set)) {
    if (range.first > from) out.emplace_back(from, range.first - 1);
    from = range.second + 1;
  }
  if (from <= kLast) out.emplace_back(from, kLast);
  return out;
}

bool holds(const Set& set, char32_t c) {
  const auto after = std::upper_bound(set.begin(), set.end(), c,
                                      [](char32_t x, const auto& range) { return x < range.first; });
  return after != set.begin() && c <= std::prev(after)->second;
}

// Characters that have another case, each with it.
const std::vector<std::pair<char32_t, char32_t>>& case_pairs() {
  static const auto pairs = [] {
    std::vector<std::pair<char32_t, char32_t>> out;
    for (char32_t c = 0; c < 0x1F000; ++c)  // the last alphabet with two cases ends at 1E943
      for (const char32_t other : {lower_case(c), upper_case(c)})
        if (other != c) out.emplace_back(c, other);
    return out;
  }();
  return pairs;
}

// The set (tidy), and what it holds in another case.
Set folded(const Set& set) {
  Set out = set;
  for (const auto& pair : case_pairs()) {
    if (holds(set, pair.first)) out.emplace_back(pair.second, pair.second);
    if (holds(set, pair.second)) out.emplace_back(pair.first, pair.first);
  }
  return tidy(std::move(out));
}

const Set kDigits = {{'0', '9'}}, kWords = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
          kSpaces = {{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}};

std::optional<Set> named_class(std::string_view name) {
  static const std::pair<std::string_view, Set> kClasses[] = {
      {"alnum", {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}},
      {"alpha", {{'A', 'Z'}, {'a', 'z'}}},
      {"ascii", {{0, 127}}},
      {"blank", {{'\t', '\t'}, {' ', ' '}}},
      {"cntrl", {{0, 31}, {127, 127}}},
      {"digit", kDigits},
      {"graph", {{'!', '~'}}},
      {"lower", {{'a', 'z'}}},
      {"print", {{' ', '~'}}},
      {"punct", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}},
      {"space", {{'\t', '\r'}, {' ', ' '}}},
      {"upper", {{'A', 'Z'}}},
      {"word", kWords},
      {"xdigit", {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}},
  };
  for (const auto& [word, set] : kClasses)
    if (word == name) return set;
  return std::nullopt;
}

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

bool is_word(char32_t c) {
  return c < 128 && ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_');
}

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

bool Regex::matches(std::string_view text) const {
  std::vector<std::int32_t> now, then, stack;
  std::vector<std::uint64_t> seen(states_.size(), 0);  // the step at which a state was entered, + 1
  std::uint64_t step = 0;
  bool found = false;
  // Enters a state and all that follow without a character. before, after: around this place of the text.
  const auto enter = [&](std::vector<std::int32_t>& list, std::int32_t from, std::optional<char32_t> before,
                         std::optional<char32_t> after) {
    stack.push_back(from);
    while (!stack.empty()) {
      const auto at = static_cast<std::size_t>(stack.back());
      stack.pop_back();
      if (seen[at] == step + 1) continue;
      seen[at] = step + 1;
      const State& state = states_[at];
      const bool edge = (before.has_value() && is_word(*before)) != (after.has_value() && is_word(*after));
      bool goes_on = true;
      switch (state.kind) {
        case Kind::kSet:
          list.push_back(static_cast<std::int32_t>(at));
          continue;
        case Kind::kMatch:
          found = found || !after.has_value();
          continue;
        case Kind::kSplit:
          stack.push_back(state.other);
          break;
        case Kind::kJump:
          break;
        case Kind::kBegin:
          goes_on = !before.has_value();
          break;
        case Kind::kEnd:
          goes_on = !after.has_value();
          break;
        case Kind::kBeginLine:
          goes_on = !before.has_value() || *before == U'\n';
          break;
        case Kind::kEndLine:
          goes_on = !after.has_value() || *after == U'\n';
          break;
        case Kind::kWord:
          goes_on = edge;
          break;
        case Kind::kNotWord:
          goes_on = !edge;
          break;
      }
      if (goes_on) stack.push_back(state.next);
    }
  };
  std::u32string characters;
  while (!text.empty()) characters += take_character(text);
  const auto at = [&](std::size_t i) {
    return i < characters.size() ? std::optional<char32_t>(characters[i]) : std::nullopt;
  };
  enter(now, start_, std::nullopt, at(0));
  for (std::size_t i = 0; i < characters.size() && !now.empty(); ++i) {
    ++step;
    then.clear();
    for (const std::int32_t id : now) {
      const State& state = states_[static_cast<std::size_t>(id)];
      const Set& set = sets_[static_cast<std::size_t>(state.other)];
      if (holds(set, characters[i])) enter(then, state.next, characters[i], at(i + 1));
    }
    now.swap(then);
  }
  return found;
}

}  // namespace pare
