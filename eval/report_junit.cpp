#include <vector>

#include "engine/base/error.h"
#include "eval/report_plots.h"
#include "eval/report_render.h"

namespace pare {
namespace {

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

std::string document(const Report& report, std::size_t tests, std::size_t failures, std::size_t errors,
                     const std::string& cases) {
  double seconds = 0;
  for (const ReportStage& stage : report.stages) seconds += stage.seconds;
  const std::string counts =
      fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\"", tests, failures, errors);
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"pare\" {0} time=\"{1:.3f}\">\n"
      "  <testsuite name=\"{2}\" {0} skipped=\"0\" time=\"{1:.3f}\">\n{3}  </testsuite>\n</testsuites>\n",
      counts, seconds, html_escape(report.title), cases);
}

}  // namespace

std::string render_junit(const Report& report) {
  const std::vector<TestCase> cases = test_cases(report);
  std::size_t failures = 0;
  for (const TestCase& test : cases) failures += test.failure.empty() ? 0 : 1;
  const std::string name = html_escape(report.title);
  std::string out;
  for (const TestCase& test : cases) {
    out += fmt::format("    <testcase classname=\"{}.{}\" name=\"{}\" time=\"0\">\n", name, test.group,
                       html_escape(test.name));
    if (!test.failure.empty())
      out += fmt::format("      <failure message=\"{}\">{}</failure>\n", html_escape(test.failure),
                         html_escape(test.detail));
    else
      out += fmt::format("      <system-out>{}</system-out>\n", html_escape(test.detail));
    out += "    </testcase>\n";
  }
  return document(report, cases.size(), failures, 0, out);
}

std::string render_junit_error(const Report& report, const std::string& stage, const Error& error) {
  std::string detail = error.where();
  if (!error.hint().empty()) detail += (detail.empty() ? "" : "\n") + error.hint();
  return document(report, 1, 0, 1,
                  fmt::format("    <testcase classname=\"{}.stages\" name=\"{}\" time=\"0\">\n"
                              "      <error message=\"{}\">{}</error>\n    </testcase>\n",
                              html_escape(report.title), html_escape(stage), html_escape(error.what()),
                              html_escape(detail)));
}

}  // namespace pare
