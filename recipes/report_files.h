// Reports as files, and baselines read back.
#pragma once

#include <string>
#include <vector>

#include "engine/base/json_fwd.h"
#include "eval/evaluate.h"
#include "eval/report.h"

namespace pare {

// Writes report.json (with the common keys of --json around the report's own), and of "html", "markdown",
// "junit" those asked for, into `folder`. Returns the file names, sorted.
std::vector<std::string> write_reports(const Report& report, const std::string& folder,
                                       const std::vector<std::string>& kinds, const std::string& pare_version,
                                       double seconds);

// A report.json, or a run folder that holds one.
Report read_report(const std::string& path);

// The metrics of a baseline report. Errors of read_json_file; kBadFile when there are none in it.
MetricValues read_baseline(const std::string& path);

}  // namespace pare
