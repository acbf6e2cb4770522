#include <algorithm>

#include "cli/commands.h"
#include "cli/output.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "graphsurgeon/families/family.h"
#include "graphsurgeon/forms/convert_quantized.h"
#include "graphsurgeon/forms/qoperator.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/open_checkpoint.h"
#include "graphsurgeon/simplify.h"

namespace pare {
namespace {

class Convert final : public Command {
 public:
  const char* name() const override { return "convert"; }
  const char* what() const override {
    return "a model in another form: Q/DQ, QOperator, ONNX, another tool's checkpoint";
  }

  void declare(Args& args) override {
    args.positional("MODEL", path_,
                    "ONNX file; for onnx a checkpoint folder or GGUF file; else a checkpoint folder", true)
        .option("-o,--output", "OUT", output_, "where to write the result")
        .required()
        .option("--to", "FORM", to_,
                "qdq (DequantizeLinear, operator, QuantizeLinear), qoperator (QLinearConv ...), onnx (a "
                "checkpoint); of a quantized checkpoint compressed_tensors, autoawq, gptq, gptq_v2, modelopt "
                "or gguf "
                "with the same codes and scales, float (dequantized)")
        .one_of({"qdq", "qoperator", "onnx", "float", "compressed_tensors", "autoawq", "gptq", "gptq_v2",
                 "modelopt", "gguf"},
                Choices::kExplained)
        .required()
        .flag("--with-cache", cache_,
              "onnx: with inputs and outputs for keys and values, for a token at a time")
        .example("pare convert old_int8.onnx -o int8.onnx --to qdq")
        .example("pare convert prose-llama -o prose.onnx --to onnx")
        .example("pare convert llama-awq -o llama-ct --to compressed_tensors");
  }

  int run(Context& context) override {
    if (to_ == "onnx") return export_checkpoint(context);
    if (cache_)
      throw make_error(ErrorCode::kUsage, "--with-cache is for --to onnx")
          .at("--with-cache")
          .hint("leave it out, or add --to onnx");
    if (Dialect dialect; to_ == "float" || dialect_from_name(to_, dialect))
      return convert_checkpoint(context);
    std::vector<std::string> odd;
    Graph graph = load_model(path_, &odd);
    for (const std::string& text : odd) context.warn(text);
    const std::int64_t before = count_nodes(graph);
    const QuantizedFormReport report = to_ == "qdq" ? to_qdq(graph) : to_qoperator(graph);
    Json& json = context.document();
    json["nodes_before"] = before;
    json["nodes_after"] = count_nodes(graph);
    json["converted"] = Json::object();
    json["left"] = Json::array();
    std::int64_t count = 0;
    for (const auto& [op, n] : report.converted) {
      json["converted"][op] = n;
      count += n;
    }
    context.print(fmt::format("{}: {} nodes converted to {}", path_, count, to_));
    for (const auto& [op, n] : report.converted) context.print(fmt::format("  {:<26} {}", op, n));
    for (const auto& left : report.left) {
      json["left"].push_back({{"node", left.node}, {"why", left.why}});
      context.print(fmt::format("  left: '{}' ({})", left.node, left.why));
    }
    if (count == 0)
      context.warn("nothing was converted: the model has no quantized operators of the other form");
    write_model(context, graph, output_);
    return 0;
  }

 private:
  int export_checkpoint(Context& context) const {
    check_output(output_, {path_});
    BuildOptions options;
    options.with_cache = cache_;
    const Graph graph = build_graph(open_checkpoint(path_), options);
    context.document()["nodes_after"] = count_nodes(graph);
    context.print(fmt::format("{} nodes", count_nodes(graph)));
    write_model(context, graph, output_);
    return 0;
  }

  int convert_checkpoint(Context& context) const {
    if (model_kind(path_) != ModelKind::kCheckpoint)
      throw make_error(ErrorCode::kUsage, "--to {} is for a checkpoint folder", to_)
          .at(path_)
          .hint(model_kind(path_) == ModelKind::kGguf
                    ? "a GGUF file goes --to onnx alone"
                    : "`pare quantize MODEL --export FORM` writes a quantized model out of a float one");
    const Checkpoint checkpoint = open_checkpoint(path_);
    ConvertedCheckpoint converted;
    Dialect dialect = Dialect::kCompressedTensors;
    if (dialect_from_name(to_, dialect))
      converted = convert_quantized(checkpoint, dialect, output_, context.pool());
    else
      converted.written = write_dequantized(checkpoint, output_);
    Json& json = context.document();
    json["output"] = output_;
    json["layers"] = checkpoint.quantized->model().layers.size();
    json["tensors"] = converted.written.tensors;
    json["bytes"] = converted.written.bytes;
    json["compared"] = converted.layers;
    context.print(fmt::format("wrote {} ({} layers, {} tensors, {} bytes){}", output_,
                              checkpoint.quantized->model().layers.size(), converted.written.tensors,
                              converted.written.bytes,
                              converted.layers > 0 ? "; every layer read back is the same" : ""));
    return 0;
  }

  std::string path_, output_, to_;
  bool cache_ = false;
};

}  // namespace

std::unique_ptr<Command> make_convert() { return std::make_unique<Convert>(); }

}  // namespace pare
