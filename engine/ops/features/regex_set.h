// Sets of characters, as regular expressions name them.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace pare::regex {

using Set = std::vector<std::pair<char32_t, char32_t>>;  // ranges, ends included

constexpr char32_t kLast = 0x10FFFF;

Set tidy(Set set);  // sorted, apart from each other
Set negated(const Set& set);
bool holds(const Set& set, char32_t c);  // of a tidy set
Set folded(const Set& set);              // a tidy set, and what it holds in another case

extern const Set kDigits, kWords, kSpaces;              // \d \w \s: ASCII
bool is_word(char32_t c);                               // in kWords
std::optional<Set> named_class(std::string_view name);  // "alpha" of [[:alpha:]]; none when there is no such

}  // namespace pare::regex
