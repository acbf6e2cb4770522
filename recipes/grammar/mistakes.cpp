#include "recipes/grammar/mistakes.h"

#include <algorithm>
#include <charconv>
#include <string>

namespace pare {
namespace {

// "recipe.yaml:3:17" -> 3, 17; zeros where there are none (--set).
std::pair<int, int> line_and_column(const std::string& where) {
  const std::size_t second = where.rfind(':');
  const std::size_t first =
      second == std::string::npos || second == 0 ? std::string::npos : where.rfind(':', second - 1);
  if (first == std::string::npos) return {0, 0};
  int line = 0, column = 0;
  const char* text = where.data();
  if (std::from_chars(text + first + 1, text + second, line).ec != std::errc() ||
      std::from_chars(text + second + 1, text + where.size(), column).ec != std::errc())
    return {0, 0};
  return {line, column};
}

}  // namespace

void Mistakes::raise() {
  if (errors_.empty()) return;
  std::stable_sort(errors_.begin(), errors_.end(), [](const Error& a, const Error& b) {
    return line_and_column(a.where()) < line_and_column(b.where());
  });
  const auto usage = std::find_if(errors_.begin(), errors_.end(),
                                  [](const Error& e) { return e.code() == ErrorCode::kUsage; });
  if (usage != errors_.end()) std::rotate(errors_.begin(), usage, usage + 1);
  std::vector<Error> all;
  all.swap(errors_);
  const Error first = all.front();
  all.erase(all.begin());
  if (all.empty()) throw first;
  throw ManyErrors(first, std::move(all));
}

}  // namespace pare
