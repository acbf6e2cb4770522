#include "engine/ops/features/regex.h"

#include <optional>

#include "engine/base/unicode.h"
#include "engine/ops/features/regex_set.h"

namespace pare {
bool Regex::matches(std::string_view text) const {
  std::vector<std::int32_t> now, then, stack;
  std::vector<std::uint64_t> seen(states_.size(), 0);  // the step at which a state was entered, + 1
  std::uint64_t step = 0;
  bool found = false;
  // Enters a state and all that follow without a character. before, after: around this place of the text.
  const auto enter = [&](std::vector<std::int32_t>& list, std::int32_t from, std::optional<char32_t> before,
                         std::optional<char32_t> after) {
    stack.push_back(from);
    while (!stack.empty()) {
      const auto at = static_cast<std::size_t>(stack.back());
      stack.pop_back();
      if (seen[at] == step + 1) continue;
      seen[at] = step + 1;
      const State& state = states_[at];
      const bool edge =
          (before.has_value() && regex::is_word(*before)) != (after.has_value() && regex::is_word(*after));
      bool goes_on = true;
      switch (state.kind) {
        case Kind::kSet:
          list.push_back(static_cast<std::int32_t>(at));
          continue;
        case Kind::kMatch:
          found = found || !after.has_value();
          continue;
        case Kind::kSplit:
          stack.push_back(state.other);
          break;
        case Kind::kJump:
          break;
        case Kind::kBegin:
          goes_on = !before.has_value();
          break;
        case Kind::kEnd:
          goes_on = !after.has_value();
          break;
        case Kind::kBeginLine:
          goes_on = !before.has_value() || *before == U'\n';
          break;
        case Kind::kEndLine:
          goes_on = !after.has_value() || *after == U'\n';
          break;
        case Kind::kWord:
          goes_on = edge;
          break;
        case Kind::kNotWord:
          goes_on = !edge;
          break;
      }
      if (goes_on) stack.push_back(state.next);
    }
  };
  std::u32string characters;
  while (!text.empty()) characters += take_character(text);
  const auto at = [&](std::size_t i) {
    return i < characters.size() ? std::optional<char32_t>(characters[i]) : std::nullopt;
  };
  enter(now, start_, std::nullopt, at(0));
  for (std::size_t i = 0; i < characters.size() && !now.empty(); ++i) {
    ++step;
    then.clear();
    for (const std::int32_t id : now) {
      const State& state = states_[static_cast<std::size_t>(id)];
      const Set& set = sets_[static_cast<std::size_t>(state.other)];
      if (regex::holds(set, characters[i])) enter(then, state.next, characters[i], at(i + 1));
    }
    now.swap(then);
  }
  return found;
}

}  // namespace pare
