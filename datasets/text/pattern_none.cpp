// In place of pattern_pcre2.cpp where PCRE2 is not installed.
#include "datasets/text/pattern.h"
#include "engine/base/error.h"

namespace pare {

struct Pattern::State {};

Pattern::Pattern(const std::string&) {
  throw make_error(ErrorCode::kUnsupported, "this build has no regular expressions for tokenizers")
      .hint("install libpcre2-dev and build again");
}
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

std::vector<std::pair<std::size_t, std::size_t>> Pattern::find_all(std::string_view) const { return {}; }

}  // namespace pare
