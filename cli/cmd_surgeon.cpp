#include "cli/commands.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/onnx/write.h"
#include "graphsurgeon/simplify.h"

namespace pare {
namespace {

class SurgeonSimplify final : public Command {
 public:
  const char* name() const override { return "surgeon simplify"; }
  const char* what() const override { return "fold, merge and remove nodes; the outputs are compared after"; }

  void declare(Args& args) override {
    args.positional("MODEL", path_, "ONNX file")
        .option("-o,--output", "OUT", output_,
                "where to write the result (without: only say what would change)")
        .option("--without", "PASS", without_, "leave a pass out", "surgery")
        .option("--opset", "N", opset_, "ONNX opset of the result (default: the input's)", "export.opset")
        .flag("--no-check", no_check_, "do not compare outputs on generated inputs")
        .example("pare surgeon simplify resnet.onnx -o small.onnx");
  }

  int run(Context& context) override {
    Graph graph = load_model(path_);
    SimplifyOptions options;
    options.without = without_;
    options.self_check = !no_check_;
    options.pool = &context.pool();
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
    if (output_.empty()) return 0;
    WriteOptions write;
    write.opset = static_cast<int>(opset_);
    const WriteReport written = write_onnx(graph, output_, write);
    for (const std::string& why : written.why) context.warn(why);
    json["output"] = output_;
    json["opset"] = written.opset;
    context.print(fmt::format("wrote {} (opset {}, {} bytes)", output_, written.opset, written.bytes));
    return 0;
  }

 private:
  std::string path_, output_;
  std::vector<std::string> without_;
  std::int64_t opset_ = 0;
  bool no_check_ = false;
};

}  // namespace

std::unique_ptr<Command> make_surgeon_simplify() { return std::make_unique<SurgeonSimplify>(); }

}  // namespace pare
