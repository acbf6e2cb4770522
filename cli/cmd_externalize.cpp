#include "cli/commands.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/onnx/externalize.h"

namespace pare {
namespace {

class SurgeonExternalize final : public Command {
 public:
  const char* name() const override { return "surgeon externalize"; }
  const char* what() const override { return "weights into files beside the model, or back into it"; }

  void declare(Args& args) override {
    args.positional("MODEL", path_, "ONNX file")
        .option("-o,--output", "OUT", output_,
                "where to write the model; its weights go into the same folder")
        .required()
        .option("--min-bytes", "BYTES", threshold_, "smaller tensors stay in the model")
        .flag("--one-file", one_file_, "all weights in one file, OUT.data: what happens without these flags")
        .flag("--file-per-tensor", per_tensor_, "a file for each tensor, OUT.TENSOR.data")
        .flag("--inline", inline_, "the way back: all weights into the model (at most 2 GB)")
        .option("--location", "NAME", location_, "name of the one file of weights")
        .example("pare surgeon externalize model.onnx -o out/model.onnx")
        .example("pare surgeon externalize out/model.onnx -o whole.onnx --inline");
  }

  int run(Context& context) override {
    if (one_file_ + per_tensor_ + inline_ > 1)
      throw make_error(ErrorCode::kUsage, "--one-file, --file-per-tensor and --inline exclude each other")
          .hint("give one of them");
    if (!location_.empty() && (per_tensor_ || inline_))
      throw make_error(ErrorCode::kUsage, "--location names the one file of weights")
          .hint("leave out --file-per-tensor and --inline, or --location");
    if (threshold_ < 0)
      throw make_error(ErrorCode::kUsage, "--min-bytes {} is negative", threshold_)
          .hint("0 puts every tensor outside");
    const ModelKind kind = model_kind(path_);
    if (kind != ModelKind::kOnnx)
      throw make_error(ErrorCode::kUnsupported, "'{}' is a {} model, not an ONNX file", path_,
                       model_kind_name(kind))
          .at(path_)
          .hint("only ONNX files have external data");
    ExternalOptions options;
    options.files = inline_       ? ExternalFiles::kNone
                    : per_tensor_ ? ExternalFiles::kPerTensor
                                  : ExternalFiles::kOne;
    options.threshold = threshold_;
    options.location = location_;
    const ExternalizeReport report = externalize_onnx(path_, output_, options);
    Json& json = context.document();
    json["output"] = output_;
    json["model_bytes"] = report.model_bytes;
    json["external_bytes"] = report.external_bytes;
    json["external_tensors"] = report.tensors;
    json["files"] = report.files;
    context.print(fmt::format("wrote {} ({} bytes)", output_, report.model_bytes));
    if (!report.files.empty())
      context.print(fmt::format(
          "  {} tensors, {} bytes, in {}", report.tensors, report.external_bytes,
          report.files.size() == 1 ? report.files[0] : fmt::format("{} files", report.files.size())));
    return 0;
  }

 private:
  std::string path_, output_, location_;
  std::int64_t threshold_ = 1024;
  bool one_file_ = false, per_tensor_ = false, inline_ = false;
};

}  // namespace

std::unique_ptr<Command> make_surgeon_externalize() { return std::make_unique<SurgeonExternalize>(); }

}  // namespace pare
