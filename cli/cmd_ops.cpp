#include <cctype>
#include <map>

#include "cli/commands.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/ir/schema.h"
#include "engine/numeric/table.h"
#include "engine/ops/registry.h"
#include "graphsurgeon/gguf/gguf_write.h"
#include "quant/placement/spec.h"

namespace pare {
namespace {

class Ops final : public Command {
 public:
  const char* name() const override { return "ops"; }
  const char* what() const override { return "operators and their kernels; number formats and schemes"; }

  void declare(Args& args) override {
    args.flag("--formats", formats_, "number formats, and the schemes that --format takes")
        .example("pare ops --formats");
  }

  int run(Context& context) override {
    if (formats_)
      formats(context);
    else
      operators(context);
    return 0;
  }

 private:
  static void operators(Context& context) {
    std::map<std::string, std::vector<std::string>> by_op;
    for (const OpSchema* schema : all_schemas()) {
      auto& kernels = by_op[schema->domain.empty() ? std::string(schema->op)
                                                   : fmt::format("{}.{}", schema->domain, schema->op)];
      // Control flow, sequences and optionals: the session's own work.
      if (!schema->tensors && cpu_registry().candidates(schema->domain, schema->op, Backend::kCpu).empty())
        kernels.push_back(std::string(schema->op) + "/engine");
    }
    for (const Kernel& kernel : cpu_registry().kernels()) {
      const std::string op =
          kernel.domain.empty() ? std::string(kernel.op) : fmt::format("{}.{}", kernel.domain, kernel.op);
      by_op[op].push_back(std::string(kernel.name) + (kernel.invariant ? "" : " (depends on batch)"));
    }
    Json list = Json::array();
    for (const auto& [op, kernels] : by_op) {
      std::string line = fmt::format("{:<26}", op);
      for (const std::string& kernel : kernels) line += " " + kernel;
      context.print(kernels.empty() ? line + " (shapes only: runs by its function body where it has one)"
                                    : line);
      list.push_back({{"op", op}, {"kernels", kernels}});
    }
    context.document()["ops"] = std::move(list);
  }

  static void formats(Context& context) {
    Json numbers = Json::array(), schemes = Json::array();
    int count = 0;
    const FormatInfo* table = pare::formats(count);
    context.print(fmt::format("{:<18} {:>4} {:>12} {:>12}  {:<10} {}", "format", "bits", "largest",
                              "smallest", "safetensors", "ONNX Q/DQ from opset"));
    for (int i = 0; i < count; ++i) {
      const FormatInfo& f = table[i];
      context.print(fmt::format("{:<18} {:>4} {:>12.6g} {:>12.6g}  {:<10} {}", f.name, f.bits, f.largest,
                                f.smallest, f.safetensors == nullptr ? "" : f.safetensors,
                                f.qdq_opset == 0 ? "" : std::to_string(f.qdq_opset)));
      Json row = {{"name", f.name}, {"bits", f.bits}, {"largest", f.largest}, {"smallest", f.smallest}};
      row["safetensors"] = f.safetensors == nullptr ? Json(nullptr) : Json(f.safetensors);
      row["onnx"] = f.onnx_code;
      row["qdq_opset"] = f.qdq_opset;
      numbers.push_back(std::move(row));
    }
    context.print("\nschemes of --format (recipe key quantize.scheme):");
    for (const quant::Scheme& scheme : quant::schemes()) {
      context.print(fmt::format("{:<14} {}", scheme.name, scheme.meaning));
      schemes.push_back({{"name", scheme.name},
                         {"meaning", scheme.meaning},
                         {"weights", to_string(scheme.weights)},
                         {"activations", to_string(scheme.activations)}});
    }
    context.print(
        "\nNames in capitals are compressed-tensors' presets: nvfp4, mxfp4, mxfp8, int8 and fp8 are others "
        "than "
        "NVFP4 ... FP8.");
    Json ggml = Json::array();
    context.print("\ntypes of --format with --export gguf, by ggml's own rounding:");
    for (const GgmlType* type : gguf_quantized_types()) {
      std::string word = type->name;
      for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      const double width = 8.0 * type->bytes / type->block;
      context.print(fmt::format("{:<14} {} bits a weight, blocks of {}", word, width, type->block));
      ggml.push_back({{"name", word}, {"bits_per_weight", width}, {"block", type->block}});
    }
    context.document()["gguf_types"] = std::move(ggml);
    context.document()["formats"] = std::move(numbers);
    context.document()["schemes"] = std::move(schemes);
  }

  bool formats_ = false;
};

}  // namespace

std::unique_ptr<Command> make_ops() { return std::make_unique<Ops>(); }

}  // namespace pare
