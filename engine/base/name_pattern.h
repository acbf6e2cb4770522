// Regular expressions on names, as options and recipes give them (re:PATTERN).
#pragma once

#include <memory>
#include <string>

namespace pare {

// ECMAScript's syntax. Names above 1,024 bytes fit nothing: the matcher recurses a step a character.
class NamePattern {
 public:
  NamePattern() = default;  // fits nothing
  // Error kUsage with the reason when the pattern is none.
  explicit NamePattern(const std::string& pattern);

  bool found_in(const std::string& name) const;  // anywhere in it
  bool fits(const std::string& name) const;      // the whole of it
  // Every match replaced; $1 .. $9 are groups, $& the whole match.
  std::string replaced(const std::string& name, const std::string& replacement) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace pare
