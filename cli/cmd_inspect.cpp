#include "cli/commands.h"
#include "cli/engine_report.h"
#include "cli/inspect_checkpoint.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "eval/report_render.h"
#include "graphsurgeon/inspect.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/onnx/read.h"

namespace pare {
namespace {

std::string value_text(const ValueSummary& value) {
  return fmt::format("{} {} {}", value.name, name(value.dtype), to_string(value.shape));
}

Json value_json(const ValueSummary& value) {
  Json shape = Json::array();
  for (const Dim& dim : value.shape.dims) {
    if (dim.known())
      shape.push_back(dim.value);
    else
      shape.push_back(dim.symbol.empty() ? "?" : dim.symbol);
  }
  Json json = {{"name", value.name}, {"dtype", name(value.dtype)}, {"shape", nullptr}};
  if (value.shape.ranked) json["shape"] = std::move(shape);
  return json;
}

Json values_json(const std::vector<ValueSummary>& values) {
  Json list = Json::array();
  for (const ValueSummary& value : values) list.push_back(value_json(value));
  return list;
}

class Inspect final : public Command {
 public:
  const char* name() const override { return "inspect"; }
  const char* what() const override { return "what is inside a model"; }

  void declare(Args& args) override {
    args.positional("MODEL", path_,
                    "ONNX file, checkpoint folder, .safetensors, GGUF, or an engine that `pare build` wrote",
                    true)
        .flag("--layers", layers_, "every node with its inputs and outputs; of a checkpoint, every tensor")
        .flag("--verify-data", verify_data_,
              "read external data and compare it with the model's checksums; of a checkpoint, look for NaN "
              "in all weights")
        .example("pare inspect resnet.onnx --layers")
        .example("pare inspect prose-llama");
  }

  int run(Context& context) override {
    const ModelKind kind = model_kind(path_);
    if (kind == ModelKind::kEngine) return inspect_engine(context);
    if (kind != ModelKind::kOnnx) return inspect_checkpoint(context, path_, layers_, verify_data_);
    const ModelSummary m = inspect_model(path_);
    if (verify_data_) read_onnx(path_, {.infer = false, .verify_data = true});
    fill(m, context.document());
    context.print(fmt::format("{}: {}, opset {}, IR version {}{}", path_, m.format, m.opset, m.ir_version,
                              m.producer.empty() ? "" : ", by " + m.producer));
    context.print(fmt::format("{} nodes{}, {} parameters, {} of weights", m.nodes,
                              m.subgraphs == 0 ? "" : fmt::format(" ({} subgraphs)", m.subgraphs),
                              m.parameters, bytes_text(static_cast<double>(m.weight_bytes))));
    for (const ValueSummary& value : m.inputs) context.print("  input   " + value_text(value));
    for (const ValueSummary& value : m.outputs) context.print("  output  " + value_text(value));
    std::string ops = "  ops    ";
    for (const auto& [op, count] : m.ops) {
      const std::string word = fmt::format(" {} {}", count, op);
      if (ops.size() + word.size() > 98) {
        context.print(ops);
        ops = "         ";
      }
      ops += word;
    }
    context.print(ops);
    if (layers_)
      for (const NodeSummary& node : m.layers) print_layer(context, node);
    return 0;
  }

 private:
  // Needs no device.
  int inspect_engine(Context& context) const {
    const EngineFile engine = read_engine(path_);
    const EnginePlan& plan = engine.plan;
    const EngineProvenance& p = engine.provenance;
    Json& json = context.document();
    json["format"] = "engine";
    json["device"] = fmt::format("{} ({})", p.device, p.architecture);
    json["batch"] = p.batch;
    json["model"] = p.model;
    json["model_sha256"] = p.model_sha256;
    json["recipe"] = p.recipe;
    json["data"] = p.data;
    json["sha256"] = engine.sha256;
    json["kernels"] = count_kernels(plan) + static_cast<int>(engine.rows.size());
    json["weight_bytes"] = plan.weight_bytes;
    json["layers"] = engine_layers(engine);
    const auto values = [&](const std::vector<int>& ids) {
      std::vector<ValueSummary> list;
      for (const int id : ids) {
        const PlanTensor& t = plan.tensors[static_cast<std::size_t>(id)];
        ValueSummary value;
        value.name = t.name;
        value.dtype = t.dtype;
        value.shape = Shape(t.dims);
        list.push_back(std::move(value));
      }
      return list;
    };
    const std::vector<ValueSummary> inputs = values(plan.inputs), outputs = values(plan.outputs);
    json["profiles"] = Json::array({{{"inputs", values_json(inputs)}, {"outputs", values_json(outputs)}}});
    json["dimensions"] = profile_json(engine.profile);
    context.print(fmt::format("{}: engine for {} ({}), batch {}, stored as {}, of {} by pare {}", path_,
                              p.device, p.architecture, p.batch, plan.precision, p.model, p.pare_version));
    if (!p.recipe.empty()) context.print("quantized by recipe " + p.recipe);
    context.print(fmt::format(
        "{} layers, {} kernels, {} of weights, {} of activations; layers timed alone: {:.1f} us",
        plan.layers.size() + engine.rows.size(), count_kernels(plan) + static_cast<int>(engine.rows.size()),
        bytes_text(static_cast<double>(plan.weight_bytes)), bytes_text(static_cast<double>(plan.arena_bytes)),
        layers_microseconds(engine)));
    if (!engine.profile.empty())
      context.print(
          fmt::format("profile: {}; {} shapes prepared", to_string(engine.profile),
                      engine.is_cpu() ? std::string("all") : std::to_string(engine.more.size() + 1)));
    for (const ValueSummary& value : inputs) context.print("  input   " + value_text(value));
    for (const ValueSummary& value : outputs) context.print("  output  " + value_text(value));
    print_layers(context, engine);
    return 0;
  }

  void fill(const ModelSummary& m, Json& json) const {
    json["format"] = m.format;
    json["opset"] = m.opset;
    json["ir_version"] = m.ir_version;
    json["producer"] = m.producer;
    json["opsets"] = m.opsets;
    json["nodes"] = m.nodes;
    json["ops"] = m.ops;
    json["parameters"] = m.parameters;
    json["weight_bytes"] = m.weight_bytes;
    json["inputs"] = values_json(m.inputs);
    json["outputs"] = values_json(m.outputs);
    json["subgraphs"] = m.subgraphs;
    json["metadata"] = m.metadata;
    if (!layers_) return;
    json["layers"] = Json::array();
    for (const NodeSummary& node : m.layers) {
      Json layer = {{"name", node.name}, {"op", node.op}, {"domain", node.domain}, {"scope", node.scope}};
      layer["inputs"] = values_json(node.in);
      layer["outputs"] = values_json(node.out);
      json["layers"].push_back(std::move(layer));
    }
  }

  static void print_layer(Context& context, const NodeSummary& node) {
    context.print(fmt::format("{}{} {}", node.scope.empty() ? "" : node.scope + ": ", node.op, node.name));
    for (const ValueSummary& value : node.in) context.print("    in   " + value_text(value));
    for (const ValueSummary& value : node.out) context.print("    out  " + value_text(value));
  }

  std::string path_;
  bool layers_ = false, verify_data_ = false;
};

}  // namespace

std::unique_ptr<Command> make_inspect() { return std::make_unique<Inspect>(); }

}  // namespace pare
