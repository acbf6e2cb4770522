#include "engine/base/unicode.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace pare {
namespace {

struct CaseRun {
  std::uint32_t first, last, step;
  std::int32_t delta;
};

#include "engine/base/unicode_case.inc"

// Runs are sorted by their first character and may interleave with at most one other.
template <std::size_t N>
char32_t mapped(const CaseRun (&runs)[N], char32_t character) {
  const auto* after = std::upper_bound(std::begin(runs), std::end(runs), character,
                                       [](char32_t c, const CaseRun& run) { return c < run.first; });
  for (int back = 0; back < 3 && after != std::begin(runs); ++back) {
    --after;
    if (character <= after->last && (character - after->first) % after->step == 0)
      return static_cast<char32_t>(static_cast<std::int64_t>(character) + after->delta);
  }
  return character;
}

}  // namespace

char32_t take_character(std::string_view& rest) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(rest[i]); };
  const std::uint8_t lead = byte(0);
  const std::size_t more = lead < 0x80                   ? 0
                           : lead >= 0xC2 && lead < 0xE0 ? 1
                           : lead >= 0xE0 && lead < 0xF0 ? 2
                                                         : 3;
  char32_t character = lead;
  bool good = lead < 0x80 || (lead >= 0xC2 && lead < 0xF5);
  if (good && more > 0) {
    character = lead & (0x3FU >> more);
    good = rest.size() > more;
    for (std::size_t i = 1; good && i <= more; ++i) {
      good = (byte(i) & 0xC0U) == 0x80U;
      character = (character << 6U) | (byte(i) & 0x3FU);
    }
    constexpr char32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
    good = good && character >= kLeast[more] && character <= 0x10FFFF &&
           (character < 0xD800 || character >= 0xE000);
  }
  rest.remove_prefix(good ? more + 1 : 1);
  return good ? character : kReplacement;
}

void append_utf8(std::string& text, char32_t character) {
  const auto add = [&](char32_t bits) { text += static_cast<char>(static_cast<std::uint8_t>(bits)); };
  if (character < 0x80) return add(character);
  if (character < 0x800) {
    add(0xC0 | character >> 6);
  } else {
    if (character < 0x10000) {
      add(0xE0 | character >> 12);
    } else {
      add(0xF0 | character >> 18);
      add(0x80 | (character >> 12 & 0x3F));
    }
    add(0x80 | (character >> 6 & 0x3F));
  }
  add(0x80 | (character & 0x3F));
}

char32_t lower_case(char32_t character) { return mapped(kToLower, character); }
char32_t upper_case(char32_t character) { return mapped(kToUpper, character); }

bool is_white_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

}  // namespace pare
