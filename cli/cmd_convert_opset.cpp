#include "cli/commands.h"
#include "cli/output.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/onnx/convert_opset.h"
#include "graphsurgeon/onnx/read.h"
#include "graphsurgeon/onnx/write.h"
#include "graphsurgeon/self_check.h"

namespace pare {
namespace {

class SurgeonConvertOpset final : public Command {
 public:
  const char* name() const override { return "surgeon convert-opset"; }
  const char* what() const override {
    return "the same model in another opset, up or down; outputs are compared";
  }

  void declare(Args& args) override {
    args.positional("MODEL", path_, "ONNX file")
        .option("--opset", "N", opset_, "ai.onnx opset of the result, 7 to 27", "export.opset")
        .required()
        .option("-o,--output", "OUT", output_, "where to write the result (without: as --dry-run)")
        .flag("--no-check", no_check_, "do not compare outputs on generated inputs")
        .flag("--dry-run", dry_run_, "only say what would change")
        .example("pare surgeon convert-opset new.onnx --opset 13 -o old.onnx");
  }

  int run(Context& context) override {
    std::vector<std::string> odd;
    const Graph before = load_model(path_, &odd);
    for (const std::string& text : odd) context.warn(text);
    Graph graph = before;
    const ConvertOpsetReport report = convert_opset(graph, static_cast<int>(opset_));
    Json& json = context.document();
    json["from"] = report.from;
    json["to"] = report.to;
    json["folded"] = report.folded;
    json["replaced"] = Json::object();
    context.print(fmt::format("{}: opset {} to {}", path_, report.from, report.to));
    if (report.folded)
      context.print("  constants and known shapes were folded: older opsets want them in the nodes");
    for (const auto& [op, count] : report.replaced) {
      json["replaced"][op] = count;
      context.print(fmt::format("  {:<26} {} replaced by older operators", op, count));
    }
    json["checked"] = false;
    json["max_abs_diff"] = json_number(0.0);
    // What is compared is what a reader of the file gets, where it fits into memory twice.
    if (!no_check_) {
      const std::string bytes = onnx_bytes(graph);
      check(before, read_onnx_bytes(std::as_bytes(std::span(bytes)), nullptr, "", "the converted model"),
            context);
    }
    const bool dry = output_.empty() || dry_run_;
    json["dry_run"] = dry;
    if (!dry) write_model(context, graph, output_);
    return 0;
  }

 private:
  static void check(const Graph& before, const Graph& after, Context& context) {
    const SelfCheckReport report = compare_on_generated(before, after, {}, context.pool());
    if (!report.done) {
      context.warn("the outputs were not compared: " + report.why_not);
      return;
    }
    if (!report.passed)
      throw make_error(ErrorCode::kFailedGate, "the conversion changed what the model computes: {}",
                       report.failure)
          .hint("this is a bug: please report the model. --no-check writes it all the same");
    context.document()["checked"] = true;
    context.document()["max_abs_diff"] = json_number(report.max_abs_diff);
    context.print(fmt::format("outputs on generated inputs differ by at most {:.3g}", report.max_abs_diff));
  }

  std::string path_, output_;
  std::int64_t opset_ = 0;
  bool no_check_ = false, dry_run_ = false;
};

}  // namespace

std::unique_ptr<Command> make_surgeon_convert_opset() { return std::make_unique<SurgeonConvertOpset>(); }

}  // namespace pare
