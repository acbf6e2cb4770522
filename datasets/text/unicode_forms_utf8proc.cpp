#include <utf8proc.h>

#include <cstdlib>
#include <memory>

#include "datasets/text/unicode_forms.h"
#include "engine/base/error.h"

namespace pare {

std::string normal_form(const std::string& text, NormalForm form) {
  const int compose = UTF8PROC_STABLE | UTF8PROC_COMPOSE, decompose = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
  const int options[] = {compose, decompose, compose | UTF8PROC_COMPAT, decompose | UTF8PROC_COMPAT};
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t length = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
      &out, static_cast<utf8proc_option_t>(options[static_cast<int>(form)]));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(out, std::free);
  if (length < 0)
    throw make_error(ErrorCode::kBadFile, "a text has no normal form: {}", utf8proc_errmsg(length))
        .hint("look for bytes that are no UTF-8 in the text");
  return {reinterpret_cast<const char*>(out), static_cast<std::size_t>(length)};
}

const char* unicode_category(char32_t character) {
  return utf8proc_category_string(static_cast<utf8proc_int32_t>(character));
}

}  // namespace pare
