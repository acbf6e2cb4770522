#include <array>

#include "datasets/text/steps.h"
#include "datasets/text/unicode_forms.h"
#include "engine/base/unicode.h"

namespace pare {
namespace {

struct ByteCharacters {
  std::array<char32_t, 256> of_byte{};
  std::array<int, 512> byte_of{};  // -1: none
  ByteCharacters() {
    byte_of.fill(-1);
    char32_t next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      const bool itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      of_byte[b] = itself ? static_cast<char32_t>(b) : next++;
      byte_of[of_byte[b]] = static_cast<int>(b);
    }
  }
};

const ByteCharacters& byte_characters() {
  static const ByteCharacters table;
  return table;
}

}  // namespace

bool is_unicode_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_word_character(char32_t c) {
  if (c < 128) return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  if (c == 0x200C || c == 0x200D) return true;  // joiners
  const std::string_view category = unicode_category(c);
  return category[0] == 'L' || category[0] == 'M' || category == "Nd" || category == "Nl" || category == "Pc";
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) append_utf8(out, take_character(text));
  return out;
}

std::string bytes_to_characters(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char b : bytes) append_utf8(out, byte_characters().of_byte[static_cast<unsigned char>(b)]);
  return out;
}

bool characters_to_bytes(std::string_view text, std::string& bytes) {
  bytes.clear();
  while (!text.empty()) {
    const char32_t c = take_character(text);
    const int byte = c < 512 ? byte_characters().byte_of[c] : -1;
    if (byte < 0) return false;
    bytes += static_cast<char>(byte);
  }
  return true;
}

}  // namespace pare
