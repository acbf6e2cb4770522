// surgeon extract, surgeon prune
#include "cli/surgeon.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "graphsurgeon/verbs/extract.h"

namespace pare {
namespace {

Json value_list(Context& context, const Graph& graph, const std::vector<ValueId>& ids, const char* what) {
  Json list = Json::array();
  for (const ValueId id : ids) {
    const Value& value = graph.value(id);
    list.push_back({{"name", value.name}, {"dtype", name(value.dtype)}, {"shape", to_string(value.shape)}});
    context.print(
        fmt::format("  {:<7} {} {} {}", what, value.name, name(value.dtype), to_string(value.shape)));
  }
  return list;
}

class SurgeonExtract final : public SurgeonVerb {
 public:
  const char* name() const override { return "surgeon extract"; }
  const char* what() const override { return "a part of a model, cut at values"; }

  void declare_verb(Args& args) override {
    args.option("--inputs", "NAME", options_.inputs,
                "a value that the part starts from (default: the model's inputs)")
        .option("--outputs", "NAME", options_.outputs,
                "a value that the part gives (default: the model's outputs)")
        .example("pare surgeon extract resnet.onnx --outputs /2/Relu_output_0 -o stem.onnx");
  }

  int run(Context& context) override {
    if (options_.inputs.empty() && options_.outputs.empty())
      throw make_error(ErrorCode::kUsage, "give --inputs, --outputs or both: else it is the whole model")
          .hint("`pare inspect MODEL --layers` lists the names");
    Graph graph = open();
    const ExtractReport report = extract(graph, options_);
    say_nodes(context, report.nodes_before, report.nodes_after);
    Json& json = context.document();
    json["inputs"] = value_list(context, graph, graph.inputs, "input");
    json["outputs"] = value_list(context, graph, graph.outputs, "output");
    json["dropped_inputs"] = report.dropped_inputs;
    for (const std::string& name : report.unused_inputs)
      context.warn("no output needs the input '" + name + "'");
    finish(context, graph);
    return 0;
  }

 private:
  ExtractOptions options_;
};

class SurgeonPrune final : public SurgeonVerb {
 public:
  const char* name() const override { return "surgeon prune"; }
  const char* what() const override { return "drop outputs and what only they need"; }

  void declare_verb(Args& args) override {
    args.option("--drop", "OUTPUT", options_.drop_outputs, "an output to drop")
        .option("--keep", "OUTPUT", options_.keep_outputs, "keep only outputs that are named so")
        .flag("--keep-inputs", options_.keep_inputs, "inputs that nothing reads stay")
        .example("pare surgeon prune detector.onnx --drop masks -o boxes.onnx");
  }

  int run(Context& context) override {
    Graph graph = open();
    const PruneReport report = prune(graph, options_);
    say_nodes(context, report.nodes_before, report.nodes_after);
    for (const std::string& name : report.dropped_outputs) context.print("  output  " + name + " dropped");
    for (const std::string& name : report.dropped_inputs) context.print("  input   " + name + " dropped");
    context.document()["dropped_outputs"] = report.dropped_outputs;
    context.document()["dropped_inputs"] = report.dropped_inputs;
    finish(context, graph);
    return 0;
  }

 private:
  PruneOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_surgeon_extract() { return std::make_unique<SurgeonExtract>(); }
std::unique_ptr<Command> make_surgeon_prune() { return std::make_unique<SurgeonPrune>(); }

}  // namespace pare
