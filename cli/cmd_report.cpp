#include "cli/commands.h"
#include "cli/summary.h"
#include "cli/version.h"
#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"
#include "eval/report_render.h"
#include "recipes/report_files.h"

namespace pare {
namespace {

class ReportCommand final : public Command {
 public:
  const char* name() const override { return "report"; }
  const char* what() const override { return "render the reports of a run again"; }

  void declare(Args& args) override {
    args.positional("RUN", path_, "run folder, or a report.json")
        .option("-o,--output", "DIR", output_, "where to write them (default: the run folder)")
        .example("pare report runs/fashion-resnet-int8 -o /tmp/again");
  }

  int run(Context& context) override {
    const Report report = read_report(path_);
    const std::string folder = !output_.empty() ? output_ : is_directory(path_) ? path_ : parent_path(path_);
    make_directories(folder);
    write_file_atomically(join_path(folder, "report.html"), render_html(report));
    write_file_atomically(join_path(folder, "report.md"), render_markdown(report));
    write_file_atomically(join_path(folder, "junit.xml"), render_junit(report));
    print_summary(context, report);
    context.print(fmt::format("reports: {}", join_path(folder, "report.html")));
    context.document() = report_to_json(report);
    context.document()["reports"] = {"junit.xml", "report.html", "report.md"};
    return 0;
  }

 private:
  std::string path_, output_;
};

}  // namespace

std::unique_ptr<Command> make_report() { return std::make_unique<ReportCommand>(); }

}  // namespace pare
