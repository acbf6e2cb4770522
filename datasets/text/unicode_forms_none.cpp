// In place of unicode_forms_utf8proc.cpp where utf8proc is not installed.
#include "datasets/text/unicode_forms.h"
#include "engine/base/error.h"

namespace pare {
namespace {

[[noreturn]] void refuse() {
  throw make_error(ErrorCode::kUnsupported, "this build has no tables of Unicode for tokenizers")
      .hint("install libutf8proc-dev and build again");
}

}  // namespace

std::string normal_form(const std::string&, NormalForm) { refuse(); }
const char* unicode_category(char32_t) { refuse(); }

}  // namespace pare
