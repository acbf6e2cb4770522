#include <vector>

#include "engine/base/error.h"
#include "eval/report_render.h"

namespace pare {
namespace {

// XML 1.0 allows no control characters but tab and newline, not even escaped.
std::string escape(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' ? '?' : c;
    }
  }
  return out;
}

struct TestCase {
  std::string group, name, failure, detail;  // failure "": passed
};

std::vector<TestCase> test_cases(const Report& report) {
  std::vector<TestCase> cases;
  for (const ReportGate& gate : report.gates) {
    TestCase test;
    test.group = "gates";
    test.name = fmt::format("{} {} {}", gate.metric, gate.relation, number_text_short(gate.limit));
    test.detail = fmt::format("{} is {}", gate.metric, metric_text(gate.metric, gate.value));
    if (!gate.passed) test.failure = fmt::format("{}, not {}", test.detail, test.name);
    cases.push_back(test);
  }
  if (report.audit) {
    TestCase test;
    test.group = "audit";
    test.name = "the written model holds the codes and scales that were decided";
    test.detail = fmt::format("{} tensors compared", report.audit->tensors);
    if (!report.audit->passed) {
      test.failure = fmt::format("{} tensors differ", report.audit->mismatches.size());
      for (const std::string& mismatch : report.audit->mismatches) test.detail += "\n" + mismatch;
    }
    cases.push_back(test);
  }
  return cases;
}

}  // namespace

std::string render_junit(const Report& report) {
  const std::vector<TestCase> cases = test_cases(report);
  std::size_t failures = 0;
  for (const TestCase& test : cases) failures += test.failure.empty() ? 0 : 1;
  double seconds = 0;
  for (const ReportStage& stage : report.stages) seconds += stage.seconds;
  const std::string name = escape(report.title);
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  out += fmt::format("<testsuites name=\"pare\" tests=\"{}\" failures=\"{}\" errors=\"0\" time=\"{:.3f}\">\n",
                     cases.size(), failures, seconds);
  out += fmt::format(
      "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"0\" time=\"{:.3f}\">\n",
      name, cases.size(), failures, seconds);
  for (const TestCase& test : cases) {
    out += fmt::format("    <testcase classname=\"{}.{}\" name=\"{}\" time=\"0\">\n", name, test.group,
                       escape(test.name));
    if (!test.failure.empty())
      out += fmt::format("      <failure message=\"{}\">{}</failure>\n", escape(test.failure),
                         escape(test.detail));
    else
      out += fmt::format("      <system-out>{}</system-out>\n", escape(test.detail));
    out += "    </testcase>\n";
  }
  return out + "  </testsuite>\n</testsuites>\n";
}

}  // namespace pare
