// UTF-8 and upper and lower case, one character at a time.
#pragma once

#include <string>
#include <string_view>

namespace pare {

inline constexpr char32_t kReplacement = 0xFFFD;  // what stands for bytes that are no UTF-8

// The first character of a text that is not empty, which is shortened by it. A byte that begins no valid
// sequence (overlong forms, surrogates and codes above 0x10FFFF included) is one kReplacement.
char32_t take_character(std::string_view& rest);
void append_utf8(std::string& text, char32_t character);

// Simple mappings (one character to one): sharp s has no upper case here. Independent of any locale.
char32_t lower_case(char32_t character);
char32_t upper_case(char32_t character);

bool is_white_space(char32_t character);  // Unicode's White_Space, and the four separators 0x1C to 0x1F

}  // namespace pare
