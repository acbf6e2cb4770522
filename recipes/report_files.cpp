#include "recipes/report_files.h"

#include <algorithm>

#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/memory.h"
#include "engine/base/paths.h"
#include "eval/report_render.h"

namespace pare {

std::vector<std::string> write_reports(const Report& report, const std::string& folder,
                                       const std::vector<std::string>& kinds, const std::string& pare_version,
                                       double seconds) {
  Json json = {{"pare", pare_version}, {"command", report.command}};
  json.update(report_to_json(report));
  json["seconds"] = seconds;
  json["peak_rss_bytes"] = peak_rss_bytes();
  json["peak_anonymous_bytes"] = peak_anonymous_bytes();
  std::vector<std::string> names;
  const auto write = [&](const std::string& name, const std::string& text) {
    write_file_atomically(join_path(folder, name), text);
    names.push_back(name);
  };
  const auto wants = [&](const char* kind) {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  };
  if (wants("html")) write("report.html", render_html(report));
  if (wants("markdown")) write("report.md", render_markdown(report));
  if (wants("junit")) write("junit.xml", render_junit(report));
  write("report.json", dump(json, 2) + "\n");  // last: whoever sees it finds the others
  std::sort(names.begin(), names.end());
  return names;
}

Report read_report(const std::string& path) {
  const std::string file = is_directory(path) ? join_path(path, "report.json") : path;
  if (!path_exists(file))
    throw make_error(ErrorCode::kBadFile, "'{}' holds no report.json", path)
        .hint("an unfinished run has none yet: `pare run RECIPE --resume` finishes it");
  return report_from_json(read_json_file(file), file);
}

MetricValues read_baseline(const std::string& path) {
  const std::string file = is_directory(path) ? join_path(path, "report.json") : path;
  const Json json = read_json_file(file);
  const Json& metrics = json_object(json, "metrics", file);
  MetricValues values;
  for (auto item = metrics.begin(); item != metrics.end(); ++item)
    values[item.key()] = json_double(metrics, item.key().c_str(), file);
  return values;
}

}  // namespace pare
