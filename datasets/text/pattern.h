// Regular expressions as tokenizers write them: Unicode properties, look-ahead. By PCRE2.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pare {

class Pattern {
 public:
  // Error kBadFile for an expression that cannot be compiled, kUnsupported in a build without PCRE2.
  explicit Pattern(const std::string& expression);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  // The matches in `text` (valid UTF-8), from left to right, as [begin, end) in bytes; empty ones are left
  // out. Error kBadFile for an expression that takes too long on this text.
  std::vector<std::pair<std::size_t, std::size_t>> find_all(std::string_view text) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pare
