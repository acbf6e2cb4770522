// surgeon diff
#include <algorithm>

#include "cli/commands.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/verbs/model_diff.h"

namespace pare {
namespace {

constexpr std::size_t kShown = 40;

class SurgeonDiff final : public Command {
 public:
  const char* name() const override { return "surgeon diff"; }
  const char* what() const override {
    return "what is different between two models; exit 1 when something is";
  }

  void declare(Args& args) override {
    args.positional("MODEL_A", first_, "ONNX file")
        .positional("MODEL_B", second_, "ONNX file")
        .flag("--ignore-names", options_.ignore_names, "pair values by what computes them, not by name")
        .flag("--structure-only", structure_, "weights count by type and shape alone")
        .example("pare surgeon diff resnet.onnx small.onnx --ignore-names");
  }

  int run(Context& context) override {
    options_.weights = !structure_;
    const Graph first = load_model(first_), second = load_model(second_);
    const DiffReport report = diff_graphs(first, second, options_);
    Json& json = context.document();
    Json list = Json::array();
    for (const Difference& d : report.differences)
      list.push_back({{"kind", d.kind},
                      {"where", d.where},
                      {"first", d.first},
                      {"second", d.second},
                      {"max_abs", d.max_abs < 0 ? Json(nullptr) : json_number(d.max_abs)}});
    json["same"] = report.same();
    json["differences"] = std::move(list);
    json["nodes_first"] = report.nodes_first;
    json["nodes_second"] = report.nodes_second;
    json["weights_equal"] = report.weights_equal;
    json["weights_different"] = report.weights_different;
    if (report.same()) {
      context.print(fmt::format("{} and {} are the same: {} nodes, {} weights", first_, second_,
                                report.nodes_first, report.weights_equal));
      return 0;
    }
    context.print(fmt::format("{} differences ({} and {} nodes; {} weights equal, {} not)",
                              report.differences.size(), report.nodes_first, report.nodes_second,
                              report.weights_equal, report.weights_different));
    for (std::size_t i = 0; i < report.differences.size() && i < kShown; ++i) {
      const Difference& d = report.differences[i];
      const std::string left = d.first.empty() ? "(nothing)" : d.first,
                        right = d.second.empty() ? "(nothing)" : d.second;
      context.print(fmt::format("  {:<9} {}: {} | {}{}", d.kind, d.where, left, right,
                                d.max_abs < 0 ? "" : fmt::format(", differs by {:.3g}", d.max_abs)));
    }
    if (report.differences.size() > kShown)
      context.print(fmt::format("  ... {} more (--json lists all)", report.differences.size() - kShown));
    return 1;
  }

 private:
  DiffOptions options_;
  std::string first_, second_;
  bool structure_ = false;
};

}  // namespace

std::unique_ptr<Command> make_surgeon_diff() { return std::make_unique<SurgeonDiff>(); }

}  // namespace pare
