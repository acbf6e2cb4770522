// A name as options and recipes give it: as it is, or a regular expression behind "re:".
#pragma once

#include <memory>
#include <string>

namespace pare {

// "re:PATTERN" (ECMAScript's syntax) must fit the whole name, everywhere: `re:.*head.*`, not `re:head`. So
// what a pattern chooses can be read off it, and one that is made for `head` never takes `head_norm`, too.
// Names above 1,024 bytes fit no pattern: the matcher recurses a step a character.
class NamePattern {
 public:
  // Error kUsage with the reason when the pattern is none.
  explicit NamePattern(const std::string& text);

  const std::string& text() const { return text_; }  // as it was given
  bool is_pattern() const { return compiled_ != nullptr; }
  bool fits(const std::string& name) const;
  // What a name that fits becomes: `replacement`, in which $1 .. $9 are groups and $& is the whole name.
  std::string replaced(const std::string& name, const std::string& replacement) const;
  // "re:.*PATTERN.*", to be suggested where nothing fits; the text itself without "re:".
  std::string wider() const;

 private:
  struct Compiled;
  std::string text_;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace pare
