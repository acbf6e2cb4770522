// Unicode's normal forms and categories, by utf8proc.
#pragma once

#include <string>

namespace pare {

enum class NormalForm { kC, kD, kKC, kKD };

// Of valid UTF-8. Error kUnsupported in a build without utf8proc.
std::string normal_form(const std::string& text, NormalForm form);

// The two letters of the general category: "Lu", "Nd", "Mn", ...; "Cn" for what is not assigned.
const char* unicode_category(char32_t character);

}  // namespace pare
