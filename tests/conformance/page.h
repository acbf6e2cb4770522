// docs/conformance.md: the totals of every group, and a row for each test that does not pass. The page is
// both a document and the list that the test holds the program to.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace pare::conformance {

struct Verdict {
  std::string group, test;
  std::string why_not;  // "" = passed
};

// Reasons of the rows of a page, by test. What a run said by itself stands in quotes; other reasons were
// written by people, and are kept as long as the test does not pass.
std::map<std::string, std::string> reasons_of(const std::string& page);

// The whole page. Only the text in front of the first table heading is taken from `old_page`, and reasons.
std::string render_page(const std::string& old_page, const std::vector<Verdict>& verdicts);

// "group: N of M" a line.
std::string totals_text(const std::vector<Verdict>& verdicts);

// "" or which tests are newly passed or newly not passed.
std::string page_difference(const std::string& page, const std::vector<Verdict>& verdicts);

}  // namespace pare::conformance
