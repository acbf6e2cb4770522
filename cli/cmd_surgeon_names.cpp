// surgeon set-shape, surgeon rename
#include "cli/surgeon.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "graphsurgeon/verbs/rename.h"
#include "graphsurgeon/verbs/set_shape.h"

namespace pare {
namespace {

std::pair<std::string, std::string> split_at_equals(const std::string& text, const char* option,
                                                    const char* form) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0)
    throw make_error(ErrorCode::kUsage, "'{}' is not of the form {}", text, form)
        .at(option)
        .hint("for example " + std::string(form));
  return {text.substr(0, equals), text.substr(equals + 1)};
}

class SurgeonSetShape final : public SurgeonVerb {
 public:
  const char* name() const override { return "surgeon set-shape"; }
  const char* what() const override { return "other sizes for inputs; all shapes are inferred anew"; }

  void declare_verb(Args& args) override {
    args.option("--input-shape", "NAME=SIZES", shapes_, "1x3x224x224, or batch,3,h,w with names; ? is open")
        .option("--dim", "SYMBOL=SIZE", symbols_,
                "a number or another name for a named size, wherever it stands")
        .example("pare surgeon set-shape resnet.onnx --dim batch=1 -o one.onnx");
  }

  int run(Context& context) override {
    if (shapes_.empty() && symbols_.empty())
      throw make_error(ErrorCode::kUsage, "give --input-shape or --dim")
          .hint("for example --input-shape image=1x3x224x224, or --dim batch=8");
    SetShapeOptions options;
    for (const std::string& text : shapes_) {
      const auto [input, sizes] = split_at_equals(text, "--input-shape", "NAME=1x3x224x224");
      options.inputs.emplace_back(input, parse_dims(sizes));
    }
    for (const std::string& text : symbols_) {
      const auto [symbol, size] = split_at_equals(text, "--dim", "SYMBOL=SIZE");
      const std::vector<Dim> dims = parse_dims("[" + size + "]");
      if (dims.size() != 1)
        throw make_error(ErrorCode::kUsage, "'{}' is not one size", size)
            .hint("a number, or a name: batch=1, batch=n");
      options.symbols.emplace_back(symbol, dims[0]);
    }
    Graph graph = open();
    const SetShapeReport report = set_shapes(graph, options);
    Json& json = context.document();
    context.print(fmt::format("{}: {} values have another shape", path(), report.changed_values));
    json["changed_values"] = report.changed_values;
    json["inputs"] = show(context, graph, graph.inputs, "input");
    json["outputs"] = show(context, graph, graph.outputs, "output");
    for (const std::string& warning : report.warnings) context.warn(warning);
    finish(context, graph);
    return 0;
  }

 private:
  static Json show(Context& context, const Graph& graph, const std::vector<ValueId>& ids, const char* what) {
    Json list = Json::array();
    for (const ValueId id : ids) {
      const Value& value = graph.value(id);
      list.push_back(
          {{"name", value.name}, {"dtype", pare::name(value.dtype)}, {"shape", to_string(value.shape)}});
      context.print(fmt::format("  {:<7} {} {}", what, value.name, to_string(value.shape)));
    }
    return list;
  }

  std::vector<std::string> shapes_, symbols_;
};

class SurgeonRename final : public SurgeonVerb {
 public:
  const char* name() const override { return "surgeon rename"; }
  const char* what() const override { return "other names for values, nodes, inputs and outputs"; }

  void declare_verb(Args& args) override {
    args.option("--value", "OLD=NEW", values_, "any value; or re:PATTERN=REPLACEMENT with $1 for a group")
        .option("--input", "OLD=NEW", inputs_, "inputs only")
        .option("--output-name", "OLD=NEW", outputs_, "outputs only")
        .option("--node", "OLD=NEW", nodes_, "nodes")
        .example("pare surgeon rename resnet.onnx --value 're:/([0-9]+)/(.*)=block$1.$2' -o named.onnx");
  }

  int run(Context& context) override {
    std::vector<Renaming> renamings;
    const auto take = [&](RenameWhat what, const std::vector<std::string>& texts) {
      for (const std::string& text : texts) renamings.push_back(parse_renaming(what, text));
    };
    take(RenameWhat::kValue, values_);
    take(RenameWhat::kInput, inputs_);
    take(RenameWhat::kOutput, outputs_);
    take(RenameWhat::kNode, nodes_);
    if (renamings.empty())
      throw make_error(ErrorCode::kUsage, "give --value, --input, --output-name or --node")
          .hint("for example --value OLD=NEW; `pare inspect MODEL --layers` lists the names");
    Graph graph = open();
    Json list = Json::array();
    const std::vector<Renamed> renamed = rename(graph, renamings);
    for (const Renamed& r : renamed)
      list.push_back({{"kind", r.kind}, {"from", r.from}, {"to", r.to}, {"scope", r.scope}});
    constexpr std::size_t kShown = 20;
    context.print(fmt::format("{}: {} names changed", path(), renamed.size()));
    for (std::size_t i = 0; i < renamed.size() && i < kShown; ++i)
      context.print(fmt::format("  {:<7} {} -> {}", renamed[i].kind, renamed[i].from, renamed[i].to));
    if (renamed.size() > kShown) context.print(fmt::format("  ... {} more", renamed.size() - kShown));
    context.document()["renamed"] = std::move(list);
    finish(context, graph);
    return 0;
  }

 private:
  std::vector<std::string> values_, inputs_, outputs_, nodes_;
};

}  // namespace

std::unique_ptr<Command> make_surgeon_set_shape() { return std::make_unique<SurgeonSetShape>(); }
std::unique_ptr<Command> make_surgeon_rename() { return std::make_unique<SurgeonRename>(); }

}  // namespace pare
