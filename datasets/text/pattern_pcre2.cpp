#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "datasets/text/pattern.h"
#include "engine/base/error.h"

namespace pare {
namespace {

// Of one match. Words take hundreds; an expression made to take for ever is given up.
constexpr std::uint32_t kMostSteps = 1'000'000;

}  // namespace

struct Pattern::State {
  std::string expression;
  pcre2_code* code = nullptr;
  ~State() { pcre2_code_free(code); }
};

Pattern::Pattern(const std::string& expression) : state_(std::make_unique<State>()) {
  state_->expression = expression;
  int error = 0;
  PCRE2_SIZE offset = 0;
  state_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                               PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  if (state_->code == nullptr) {
    PCRE2_UCHAR text[256] = {};
    pcre2_get_error_message(error, text, sizeof text);
    throw make_error(ErrorCode::kBadFile, "the regular expression '{}' is wrong at byte {}: {}", expression,
                     offset, reinterpret_cast<const char*>(text))
        .hint("download the tokenizer again, or mend the pattern");
  }
  pcre2_jit_compile(state_->code, PCRE2_JIT_COMPLETE);  // without it, it only takes longer
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

std::vector<std::pair<std::size_t, std::size_t>> Pattern::find_all(std::string_view text) const {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
      pcre2_match_data_create_from_pattern(state_->code, nullptr), pcre2_match_data_free);
  if (data == nullptr) fail(ErrorCode::kDevice, "there is no memory for a regular expression");
  const std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> limits(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  if (limits == nullptr) fail(ErrorCode::kDevice, "there is no memory for a regular expression");
  pcre2_set_match_limit(limits.get(), kMostSteps);
  PCRE2_SIZE at = 0;
  std::uint32_t options = 0;
  while (at <= text.size()) {
    const int count = pcre2_match(state_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                  options, data.get(), limits.get());
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0)
      throw make_error(ErrorCode::kBadFile,
                       "the regular expression '{}' failed at byte {} of a text (PCRE2 code {})",
                       state_->expression, at, count)
          .hint("cut the text into shorter pieces");
    options = PCRE2_NO_UTF_CHECK;  // the first call has looked at the whole text
    const PCRE2_SIZE* place = pcre2_get_ovector_pointer(data.get());
    if (place[1] > place[0]) {
      found.emplace_back(place[0], place[1]);
      at = place[1];
      continue;
    }
    at = place[1] + 1;  // behind an empty match: one character on
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  }
  return found;
}

}  // namespace pare
