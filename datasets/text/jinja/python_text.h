// What methods and filters do with texts: those of Python's str, counted in characters. Case by the simple
// mappings of Unicode (engine/base/unicode.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pare::jinja {

std::int64_t length_of(const std::string& text);  // characters
std::u32string characters_of(const std::string& text);
std::string text_of(std::u32string_view characters);

// `chars` null: white space.
std::string stripped(const std::string& text, const std::string* chars, bool left, bool right);
std::string lowered(const std::string& text);
std::string raised(const std::string& text);
std::string capitalized(const std::string& text);
std::string titled(const std::string& text);         // Jinja's filter: behind white space and - ( { [ <
std::string python_titled(const std::string& text);  // str.title: behind everything that has no case
std::string replaced(const std::string& text, const std::string& from, const std::string& to,
                     std::int64_t count);
// `separator` null: runs of white space. At most `most` cuts when >= 0.
std::vector<std::string> split_text(const std::string& text, const std::string* separator, std::int64_t most,
                                    bool from_right);
std::vector<std::string> lines_of_text(const std::string& text);  // str.splitlines()
std::string html_escaped(const std::string& text);

}  // namespace pare::jinja
