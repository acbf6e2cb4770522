#include "datasets/text/jinja/python_text.h"

#include <algorithm>
#include <utility>

#include "engine/base/unicode.h"

namespace pare::jinja {
namespace {

template <typename Map>
std::string mapped(const std::string& text, Map map) {
  std::string out;
  for (std::string_view rest = text; !rest.empty();) append_utf8(out, map(take_character(rest)));
  return out;
}

bool has_case(char32_t c) { return lower_case(c) != c || upper_case(c) != c; }

bool ends_line(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

std::int64_t length_of(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::u32string characters_of(const std::string& text) {
  std::u32string out;
  for (std::string_view rest = text; !rest.empty();) out += take_character(rest);
  return out;
}

std::string text_of(std::u32string_view characters) {
  std::string out;
  for (const char32_t c : characters) append_utf8(out, c);
  return out;
}

std::string stripped(const std::string& text, const std::string* chars, bool left, bool right) {
  const std::u32string set = chars != nullptr ? characters_of(*chars) : U"";
  const auto goes = [&](char32_t c) {
    return chars != nullptr ? set.find(c) != std::u32string::npos : is_white_space(c);
  };
  std::string_view rest = text;
  while (left && !rest.empty()) {
    std::string_view after = rest;
    if (!goes(take_character(after))) break;
    rest = after;
  }
  while (right && !rest.empty()) {
    std::size_t at = rest.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(rest[at]) & 0xC0) == 0x80) --at;
    std::string_view last = rest.substr(at);
    if (!goes(take_character(last))) break;
    rest = rest.substr(0, at);
  }
  return std::string(rest);
}

std::string lowered(const std::string& text) { return mapped(text, lower_case); }
std::string raised(const std::string& text) { return mapped(text, upper_case); }

std::string capitalized(const std::string& text) {
  bool first = true;
  return mapped(text,
                [&](char32_t c) { return std::exchange(first, false) ? upper_case(c) : lower_case(c); });
}

std::string titled(const std::string& text) {
  bool first = true;
  return mapped(text, [&](char32_t c) {
    if (is_white_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<') {
      first = true;
      return c;
    }
    return std::exchange(first, false) ? upper_case(c) : lower_case(c);
  });
}

std::string python_titled(const std::string& text) {
  bool inside = false;
  return mapped(text, [&](char32_t c) {
    const char32_t out = inside ? lower_case(c) : upper_case(c);
    inside = has_case(c);
    return out;
  });
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to,
                     std::int64_t count) {
  std::string out;
  if (from.empty()) {  // between all characters
    std::string_view rest = text;
    for (std::int64_t n = 0;; ++n) {
      if (count < 0 || n < count) out += to;
      if (rest.empty()) break;
      append_utf8(out, take_character(rest));
    }
    return out;
  }
  std::size_t at = 0;
  for (std::int64_t n = 0; count < 0 || n < count; ++n) {
    const std::size_t found = text.find(from, at);
    if (found == std::string::npos) break;
    out.append(text, at, found - at);
    out += to;
    at = found + from.size();
  }
  return out.append(text, at, std::string::npos);
}

namespace {

std::vector<std::string> split_white(std::string_view rest, std::int64_t most) {
  std::vector<std::string> parts;
  const auto skip = [&](bool white) {
    while (!rest.empty()) {
      std::string_view after = rest;
      if (is_white_space(take_character(after)) != white) break;
      rest = after;
    }
  };
  for (skip(true); !rest.empty(); skip(true)) {
    if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) {
      parts.emplace_back(rest);
      break;
    }
    const std::string_view word = rest;
    skip(false);
    parts.emplace_back(word.substr(0, word.size() - rest.size()));
  }
  return parts;
}

}  // namespace

std::vector<std::string> split_text(const std::string& text, const std::string* separator, std::int64_t most,
                                    bool from_right) {
  std::vector<std::string> parts;
  if (separator == nullptr) {
    if (!from_right || most < 0) return split_white(text, most);
    std::u32string back = characters_of(text);  // the same on the reversed text
    std::reverse(back.begin(), back.end());
    for (const std::string& part : split_white(text_of(back), most)) {
      std::u32string word = characters_of(part);
      std::reverse(word.begin(), word.end());
      parts.push_back(text_of(word));
    }
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  if (!from_right) {
    std::size_t at = 0;
    for (std::int64_t n = 0; most < 0 || n < most; ++n) {
      const std::size_t found = text.find(*separator, at);
      if (found == std::string::npos) break;
      parts.push_back(text.substr(at, found - at));
      at = found + separator->size();
    }
    parts.push_back(text.substr(at));
    return parts;
  }
  std::size_t end = text.size();
  for (std::int64_t n = 0; (most < 0 || n < most) && end >= separator->size(); ++n) {
    const std::size_t found = text.rfind(*separator, end - separator->size());
    if (found == std::string::npos) break;
    parts.push_back(text.substr(found + separator->size(), end - found - separator->size()));
    end = found;
  }
  parts.push_back(text.substr(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> lines_of_text(const std::string& text) {
  std::vector<std::string> lines;
  std::string_view rest = text, line = text;
  while (!rest.empty()) {
    const std::string_view before = rest;
    const char32_t c = take_character(rest);
    if (!ends_line(c)) continue;
    lines.emplace_back(line.substr(0, line.size() - before.size()));
    if (c == '\r' && !rest.empty() && rest[0] == '\n') rest.remove_prefix(1);
    line = rest;
  }
  if (!line.empty()) lines.emplace_back(line);
  return lines;
}

std::string html_escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '\'')
      out += "&#39;";
    else if (c == '"')
      out += "&#34;";
    else
      out += c;
  }
  return out;
}

}  // namespace pare::jinja
