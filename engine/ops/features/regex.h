// Regular expressions in RE2's syntax, matched in time linear in the text: the states that the pattern can be
// in are followed all at once, nothing is ever tried again. Whole-text matches only, no captures.
//
//   x y, x|y, x* x+ x? x{n} x{n,} x{n,m} (also lazy: which strings match is the same), (x) (?:x) (?P<name>x)
//   . [a-z] [^a-z] \d \w \s \D \W \S [[:alpha:]] and its siblings, \pL \p{Lu} are refused (see below)
//   ^ $ \A \z, \b \B (ASCII words), (?i) (?s) (?m) (?U) and (?i:x) with any of the flags, \Q...\E
//   \a \f \n \r \t \v \123 \x7F \x{10FFFF}, and \ before punctuation
//
// Characters are Unicode; (?i) uses simple case mappings. Bytes that are no UTF-8 count as U+FFFD.
// Errors: kBadFile for what is no RE2 expression (back references and look-around are none), repetitions
// above 1,000, or a pattern whose program would exceed 100,000 states; kUnsupported for classes by Unicode
// property. Source: github.com/google/re2/wiki/Syntax; the method is that of Thompson (1968), as told by Cox
// (2007).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pare {

class Regex {
 public:
  explicit Regex(std::string_view pattern);
  bool matches(std::string_view text) const;  // the whole of it

 private:
  friend class RegexCompiler;
  enum class Kind : std::uint8_t {
    kSet,
    kSplit,
    kJump,
    kBegin,
    kEnd,
    kBeginLine,
    kEndLine,
    kWord,
    kNotWord,
    kMatch
  };
  struct State {
    Kind kind;
    std::int32_t next = -1, other = -1;  // other: kSplit's second way, kSet's place in sets_
  };
  using Set = std::vector<std::pair<char32_t, char32_t>>;  // sorted, apart from each other
  std::vector<State> states_;
  std::vector<Set> sets_;
  std::int32_t start_ = 0;
};

}  // namespace pare
