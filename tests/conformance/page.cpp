#include "tests/conformance/page.h"

#include <fmt/format.h>

#include <sstream>

namespace pare::conformance {
namespace {

constexpr std::string_view kTotals = "## Totals\n";
constexpr std::string_view kRows = "## Not passed\n";
constexpr const char* kGroups[] = {"ai.onnx", "ai.onnx.ml", "training and preview", "random",
                                   "image",   "simple",     "pytorch-converted",    "pytorch-operator"};

struct Total {
  int passed = 0, all = 0;
};

std::map<std::string, Total> totals(const std::vector<Verdict>& verdicts) {
  std::map<std::string, Total> by_group;
  for (const Verdict& v : verdicts) {
    Total& total = by_group[v.group];
    ++total.all;
    if (v.why_not.empty()) ++total.passed;
  }
  return by_group;
}

// A reason that fits a cell: short, without what a table or a line would break at.
std::string cell(std::string reason) {
  constexpr std::size_t kLongest = 160;
  if (reason.size() > kLongest) reason = reason.substr(0, kLongest) + " ...";
  std::string out;
  for (const char c : reason) out += c == '|' ? "/" : c == '"' || c == '`' ? "'" : std::string(1, c);
  return "\"" + out + "\"";
}

}  // namespace

std::map<std::string, std::string> reasons_of(const std::string& page) {
  std::map<std::string, std::string> reasons;
  const std::size_t from = page.find(kRows);
  if (from == std::string::npos) return reasons;
  std::istringstream lines(page.substr(from));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("| test_", 0) != 0 && line.rfind("| `test_", 0) != 0) continue;
    const std::size_t bar = line.find(" | "), end = line.rfind(" |");
    if (bar == std::string::npos || end <= bar) continue;
    reasons[line.substr(2, bar - 2)] = line.substr(bar + 3, end - bar - 3);
  }
  return reasons;
}

std::string render_page(const std::string& old_page, const std::vector<Verdict>& verdicts) {
  const std::map<std::string, std::string> old = reasons_of(old_page);
  std::string page = old_page.substr(0, old_page.find(kTotals));
  page += kTotals;
  page += "\n| group | tests | passed | share |\n| --- | --- | --- | --- |\n";
  auto by_group = totals(verdicts);
  for (const char* group : kGroups) {
    const Total t = by_group[group];
    page += fmt::format("| {} | {} | {} | {:.1f} % |\n", group, t.all, t.passed,
                        t.all == 0 ? 0.0 : 100.0 * t.passed / t.all);
  }
  page += "\n";
  page += kRows;
  for (const char* group : kGroups) {
    std::string rows;
    for (const Verdict& v : verdicts) {
      if (v.group != group || v.why_not.empty()) continue;
      const auto known = old.find(v.test);
      const bool written = known != old.end() && known->second.rfind('"', 0) != 0;
      rows += fmt::format("| {} | {} |\n", v.test, written ? known->second : cell(v.why_not));
    }
    if (!rows.empty()) page += fmt::format("\n### {}\n\n| test | reason |\n| --- | --- |\n{}", group, rows);
  }
  return page;
}

std::string totals_text(const std::vector<Verdict>& verdicts) {
  std::string text;
  auto by_group = totals(verdicts);
  Total node, others;
  for (const char* group : kGroups) {
    const Total t = by_group[group];
    text += fmt::format("{:<22}{:>5} of {:>5}\n", group, t.passed, t.all);
    const std::string_view name = group;
    Total& sum = name == "simple" || name.rfind("pytorch", 0) == 0 ? others : node;
    sum.passed += t.passed, sum.all += t.all;
  }
  text += fmt::format("{:<22}{:>5} of {:>5}\n{:<22}{:>5} of {:>5}\n", "all node tests", node.passed, node.all,
                      "simple and pytorch", others.passed, others.all);
  return text;
}

std::string page_difference(const std::string& page, const std::vector<Verdict>& verdicts) {
  const std::map<std::string, std::string> listed = reasons_of(page);
  std::string text;
  for (const Verdict& v : verdicts) {
    const bool is_listed = listed.count(v.test) != 0;
    if (v.why_not.empty() && is_listed) text += fmt::format("  {} passes now\n", v.test);
    if (!v.why_not.empty() && !is_listed) text += fmt::format("  {} fails: {}\n", v.test, v.why_not);
  }
  return text;
}

}  // namespace pare::conformance
