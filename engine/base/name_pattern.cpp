#include "engine/base/name_pattern.h"

#include <regex>

#include "engine/base/error.h"

namespace pare {
namespace {

constexpr std::size_t kLongest = 1024;

}  // namespace

struct NamePattern::Compiled {
  std::regex regex;
};

NamePattern::NamePattern(const std::string& pattern) {
  try {
    compiled_ = std::make_shared<const Compiled>(Compiled{std::regex(pattern, std::regex::ECMAScript)});
  } catch (const std::regex_error& error) {
    throw make_error(ErrorCode::kUsage, "'{}' is no regular expression: {}", pattern, error.what())
        .hint("ECMAScript's syntax: re:^/layer([0-9]+)/");
  }
}

bool NamePattern::found_in(const std::string& name) const {
  return compiled_ != nullptr && name.size() <= kLongest && std::regex_search(name, compiled_->regex);
}

bool NamePattern::fits(const std::string& name) const {
  return compiled_ != nullptr && name.size() <= kLongest && std::regex_match(name, compiled_->regex);
}

std::string NamePattern::replaced(const std::string& name, const std::string& replacement) const {
  return found_in(name) ? std::regex_replace(name, compiled_->regex, replacement) : name;
}

}  // namespace pare
