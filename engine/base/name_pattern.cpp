#include "engine/base/name_pattern.h"

#include <regex>

#include "engine/base/error.h"

namespace pare {
namespace {

constexpr std::size_t kLongest = 1024;
constexpr const char* kMark = "re:";

}  // namespace

struct NamePattern::Compiled {
  std::regex regex;
};

NamePattern::NamePattern(const std::string& text) : text_(text) {
  if (text.rfind(kMark, 0) != 0) return;
  const std::string pattern = text.substr(3);
  try {
    compiled_ = std::make_shared<const Compiled>(Compiled{std::regex(pattern, std::regex::ECMAScript)});
  } catch (const std::regex_error& error) {
    throw make_error(ErrorCode::kUsage, "'{}' is no regular expression: {}", pattern, error.what())
        .hint("ECMAScript's syntax, fit to whole names: re:/layer([0-9]+)/.*");
  }
}

bool NamePattern::fits(const std::string& name) const {
  if (compiled_ == nullptr) return name == text_;
  return name.size() <= kLongest && std::regex_match(name, compiled_->regex);
}

std::string NamePattern::replaced(const std::string& name, const std::string& replacement) const {
  if (compiled_ == nullptr) return fits(name) ? replacement : name;
  std::smatch groups;
  if (name.size() > kLongest || !std::regex_match(name, groups, compiled_->regex)) return name;
  return groups.format(replacement);
}

std::string NamePattern::wider() const {
  return compiled_ == nullptr ? text_ : "re:.*" + text_.substr(3) + ".*";
}

}  // namespace pare
