// The renderers of a Report. All are pure: the same report gives the same text. Numbers that are not finite
// are shown as "nan", "inf", "-inf".
#pragma once

#include <string>

#include "engine/base/error.h"
#include "engine/base/json_fwd.h"
#include "eval/report.h"

namespace pare {

// docs/json.md lists the keys. Read back by report_from_json; Error kBadFile when a key is missing or has
// another type (`what` names the file).
Json report_to_json(const Report& report);
Report report_from_json(const Json& json, const std::string& what);

std::string render_markdown(const Report& report);  // for a pull request: tables, details folded
// One file without scripts or links to others; plots are inline SVG; light and dark by the reader's system.
std::string render_html(const Report& report);
// JUnit XML: a test case a gate and one for the audit.
std::string render_junit(const Report& report);
// The same for a run that a stage ended with an error: one test case, named as the stage.
std::string render_junit_error(const Report& report, const std::string& stage, const Error& error);

// One sentence: what happened to the first metric, the size, and whether the gates passed.
std::string verdict_text(const Report& report);

// "0.9435", "34.5 dB", "1.2e-05": how a metric's value is shown to people.
std::string metric_text(const std::string& metric, double value);
std::string bytes_text(double bytes);  // "11.2 MB"
std::string number_text_short(double value);

}  // namespace pare
