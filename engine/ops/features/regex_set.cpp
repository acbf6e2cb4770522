#include "engine/ops/features/regex_set.h"

#include <algorithm>

#include "engine/base/unicode.h"

namespace pare::regex {
namespace {

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

}  // namespace

const Set kDigits = {{'0', '9'}}, kWords = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
          kSpaces = {{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}};

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

Set folded(const Set& set) {
  Set out = set;
  for (const auto& pair : case_pairs()) {
    if (holds(set, pair.first)) out.emplace_back(pair.second, pair.second);
    if (holds(set, pair.second)) out.emplace_back(pair.first, pair.first);
  }
  return tidy(std::move(out));
}

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

bool is_word(char32_t c) {
  return c < 128 && ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_');
}

}  // namespace pare::regex
