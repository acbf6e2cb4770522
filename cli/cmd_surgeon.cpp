// surgeon simplify
#include "cli/commands.h"
#include "cli/output.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/passes/passes.h"
#include "graphsurgeon/simplify.h"
#include "graphsurgeon/verbs/bisect.h"

namespace pare {
namespace {

class SurgeonSimplify final : public Command {
 public:
  const char* name() const override { return "surgeon simplify"; }
  const char* what() const override { return "fold, merge and remove nodes; the outputs are compared after"; }

  void declare(Args& args) override {
    args.positional("MODEL", path_, "ONNX file", false)
        .option("-o,--output", "OUT", output_, "where to write the result (without: as --dry-run)")
        .words("--without", "PASS", without_, "leave a pass out", "surgery_without")
        .flag("--recognize", recognize_, "also make LayerNormalization, Gelu, Attention ... of their parts",
              "surgery")
        .flag("--list-passes", list_, "say what passes there are")
        .flag("--bisect", bisect_, "find the pass, and its change, that alters an output")
        .option("--opset", "N", opset_, "ONNX opset of the result (default: the input's)", "export.opset")
        .flag("--no-check", no_check_, "do not compare outputs on generated inputs")
        .option("--tolerance", "RATIO", tolerance_,
                "of that comparison, relative to the largest value (default 1e-4)")
        .flag("--dry-run", dry_run_, "only say what would change")
        .example("pare surgeon simplify resnet.onnx -o small.onnx");
  }

  int run(Context& context) override {
    if (list_) return list_passes(context);
    if (path_.empty()) throw make_error(ErrorCode::kUsage, "MODEL is missing").hint("name an ONNX file");
    if (!output_.empty() && !dry_run_) check_output(output_, {path_});
    std::vector<std::string> odd;
    Graph graph = load_model(path_, &odd);
    for (const std::string& text : odd) context.warn(text);
    SimplifyOptions options;
    options.without = without_;
    options.recognize = recognize_;
    options.self_check = !no_check_;
    if (tolerance_ > 0) options.check.relative = tolerance_;
    options.pool = &context.pool();
    if (bisect_) return bisect(context, graph, options);
    const SimplifyReport report = simplify(graph, options);
    Json passes = Json::array();
    context.print(fmt::format("{}: {} nodes became {}", path_, report.nodes_before, report.nodes_after));
    for (const PassReport& pass : report.passes) {
      if (pass.changes > 0) context.print(fmt::format("  {:<26} {} changes", pass.name, pass.changes));
      passes.push_back({{"name", pass.name}, {"changes", pass.changes}, {"seconds", pass.seconds}});
    }
    Json& json = context.document();
    json["nodes_before"] = report.nodes_before;
    json["nodes_after"] = report.nodes_after;
    json["passes"] = std::move(passes);
    json["checked"] = report.check.done;
    json["max_abs_diff"] = json_number(report.check.max_abs_diff);
    if (report.check.done)
      context.print(
          fmt::format("outputs on generated inputs differ by at most {:.3g}", report.check.max_abs_diff));
    else if (!no_check_)
      context.warn("the outputs were not compared: " + report.check.why_not);
    const bool dry = output_.empty() || dry_run_;
    json["dry_run"] = dry;
    if (dry) return 0;
    WriteOptions write;
    write.opset = static_cast<int>(opset_);
    write_model(context, graph, output_, write);
    return 0;
  }

 private:
  int list_passes(Context& context) const {
    Json list = Json::array();
    const auto add = [&](std::span<const Pass* const> passes, bool recognition) {
      for (const Pass* pass : passes) {
        list.push_back({{"name", pass->name}, {"what", pass->sentence}, {"recognition", recognition}});
        context.print(fmt::format("  {:<31} {}", pass->name, pass->sentence));
      }
    };
    context.print("Passes, in their order:");
    add(simplify_passes(), false);
    context.print("Only with --recognize:");
    add(recognize_passes(), true);
    context.document()["known_passes"] = std::move(list);
    return 0;
  }

  int bisect(Context& context, const Graph& graph, const SimplifyOptions& options) const {
    RunPassesOptions run;
    run.without = options.without;
    const BisectReport report = bisect_passes(graph, options.recognize ? all_passes() : simplify_passes(),
                                              run, options.check, context.pool());
    if (!report.checked)
      throw make_error(ErrorCode::kUnsupported, "the outputs cannot be compared: {}", report.why_not)
          .hint("inputs need known types and sizes: pare surgeon set-shape gives them");
    Json& json = context.document();
    json["bisect"] = {{"found", report.found},    {"changes", report.changes}, {"comparisons", report.runs},
                      {"pass", report.pass},      {"change", report.change},   {"what", report.what},
                      {"failure", report.failure}};
    if (!report.found) {
      context.print(fmt::format("{}: none of {} changes alters an output", path_, report.changes));
      return 0;
    }
    context.print(fmt::format("{}: change {} of {} alters an output: pass {}, at {}", path_, report.change,
                              report.changes, report.pass, report.what));
    context.print("  " + report.failure);
    context.print(fmt::format("  --without {} leaves the pass out", report.pass));
    return 1;
  }

  std::string path_, output_;
  std::vector<std::string> without_;
  std::int64_t opset_ = 0;
  double tolerance_ = 0;
  bool no_check_ = false, recognize_ = false, list_ = false, bisect_ = false, dry_run_ = false;
};

}  // namespace

std::unique_ptr<Command> make_surgeon_simplify() { return std::make_unique<SurgeonSimplify>(); }

}  // namespace pare
