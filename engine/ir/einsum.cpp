#include "engine/ir/einsum.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/base/error.h"

namespace pare {
namespace {

constexpr char kEllipsis = '.';

[[noreturn]] void bad(const std::string& equation, const char* what) {
  throw make_error(ErrorCode::kBadFile, "equation '{}': {}", equation, what);
}

// Letters, and kEllipsis for "...".
std::string parse_term(const std::string& equation, const std::string& text) {
  std::string term;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      term += c;
    } else if (text.compare(i, 3, "...") == 0 && term.find(kEllipsis) == std::string::npos) {
      term += kEllipsis;
      i += 2;
    } else {
      bad(equation, "a term holds something that is neither a letter nor one '...'");
    }
  }
  return term;
}

}  // namespace

EinsumLabels parse_einsum(const std::string& equation, const std::vector<int>& ranks) {
  std::string text;
  for (const char c : equation)
    if (c != ' ') text += c;
  const std::size_t arrow = text.find("->");
  const std::string left = text.substr(0, arrow);
  std::vector<std::string> terms;
  for (std::size_t begin = 0;;) {
    const std::size_t comma = left.find(',', begin);
    terms.push_back(parse_term(equation, left.substr(begin, comma - begin)));
    if (comma == std::string::npos) break;
    begin = comma + 1;
  }
  if (terms.size() != ranks.size()) bad(equation, "the number of terms is not that of the inputs");

  int widest = 0;  // axes of the widest ellipsis
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const bool open = terms[i].find(kEllipsis) != std::string::npos;
    const int letters = static_cast<int>(terms[i].size()) - (open ? 1 : 0), rest = ranks[i] - letters;
    if (rest < 0 || (rest > 0 && !open)) bad(equation, "a term does not fit the rank of its input");
    if (open) widest = std::max(widest, rest);
  }

  std::string output;
  if (arrow != std::string::npos) {
    output = parse_term(equation, text.substr(arrow + 2));
  } else {
    std::map<char, int> times;
    bool open = false;
    for (const std::string& term : terms)
      for (const char c : term) {
        if (c == kEllipsis)
          open = true;
        else
          ++times[c];
      }
    if (open) output += kEllipsis;
    for (const auto& entry : times)
      if (entry.second == 1) output += entry.first;
  }

  EinsumLabels labels;
  std::map<int, int> numbers;  // letter, or 256 + place in the ellipsis
  const auto number = [&](int key) {
    const auto added = numbers.emplace(key, labels.count);
    if (added.second) ++labels.count;
    return added.first->second;
  };
  const auto axes_of = [&](const std::string& term, int ellipsis_axes) {
    std::vector<int> axes;
    for (const char c : term) {
      if (c != kEllipsis) axes.push_back(number(c));
      for (int k = 0; c == kEllipsis && k < ellipsis_axes; ++k)
        axes.push_back(number(256 + widest - ellipsis_axes + k));
    }
    return axes;
  };
  labels.out = axes_of(output, widest);
  if (labels.count != static_cast<int>(labels.out.size())) bad(equation, "the output names an axis twice");
  std::set<int> seen;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const bool open = terms[i].find(kEllipsis) != std::string::npos;
    labels.in.push_back(axes_of(terms[i], ranks[i] - static_cast<int>(terms[i].size()) + (open ? 1 : 0)));
    seen.insert(labels.in.back().begin(), labels.in.back().end());
  }
  for (const int label : labels.out)
    if (seen.count(label) == 0) bad(equation, "the output names an axis that no input has");
  return labels;
}

}  // namespace pare
