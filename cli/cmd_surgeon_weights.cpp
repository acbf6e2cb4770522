// surgeon strip-weights, surgeon restore-weights
#include <algorithm>
#include <cstdint>

#include "cli/surgeon.h"
#include "datasets/npz.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"
#include "graphsurgeon/checkpoint/safetensors.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/verbs/weights_apart.h"

namespace pare {
namespace {

class SurgeonStripWeights final : public SurgeonVerb {
 public:
  const char* name() const override { return "surgeon strip-weights"; }
  const char* what() const override {
    return "a model without its weights, with their names, shapes and hashes";
  }

  void declare_verb(Args& args) override {
    args.option("--min-bytes", "BYTES", options_.min_bytes, "smaller tensors stay in the model")
        .example("pare surgeon strip-weights resnet.onnx -o skeleton.onnx");
  }

  int run(Context& context) override {
    Graph graph = open();
    const auto taken = strip_weights(graph, options_);
    std::int64_t bytes = 0;
    for (const auto& entry : taken) bytes += entry.second.bytes();
    Json list = Json::array();
    for (const StrippedWeight& weight : stripped_weights(graph))
      list.push_back({{"name", weight.name},
                      {"dtype", pare::name(weight.dtype)},
                      {"shape", to_string(weight.dims)},
                      {"sha256", weight.sha256}});
    context.print(fmt::format("{}: {} weights, {} bytes, taken out", path(), taken.size(), bytes));
    Json& json = context.document();
    json["weights"] = std::move(list);
    json["weight_bytes"] = bytes;
    finish(context, graph);
    return 0;
  }

 private:
  StripOptions options_;
};

class SurgeonRestoreWeights final : public SurgeonVerb {
 public:
  const char* name() const override { return "surgeon restore-weights"; }
  const char* what() const override { return "give a stripped model its weights back, or others (refit)"; }

  void declare_verb(Args& args) override {
    args.option("--from", "FILE", from_,
                "where they are: an ONNX model, .safetensors or .npz, by the same names")
        .required()
        .flag("--same", same_, "refuse weights that are not the ones taken out")
        .example("pare surgeon restore-weights skeleton.onnx --from resnet.onnx -o resnet2.onnx");
  }

  int run(Context& context) override {
    Graph graph = open({from_});
    const std::vector<StrippedWeight> wanted = stripped_weights(graph);
    const RestoreReport report = restore_weights(graph, source(wanted), same_);
    context.print(fmt::format("{}: {} weights given back, {} of them others than those taken out", path(),
                              report.restored, report.changed));
    Json& json = context.document();
    json["restored"] = report.restored;
    json["changed"] = report.changed;
    json["unused"] = report.unused;
    finish(context, graph);
    return 0;
  }

 private:
  std::map<std::string, Tensor> source(const std::vector<StrippedWeight>& wanted) const {
    const std::string extension = file_extension(from_);
    if (extension == ".safetensors") return read_safetensors(from_);
    std::map<std::string, Tensor> tensors;
    if (extension == ".npz") {
      for (NamedTensor& entry : read_npz(from_)) tensors[entry.name] = std::move(entry.tensor);
      return tensors;
    }
    // Taken out as they were from this model: the names are the same for every model of the same form.
    StripOptions options;
    options.min_bytes = INT64_MAX;
    for (const StrippedWeight& weight : wanted)
      options.min_bytes = std::min(options.min_bytes, byte_count(weight.dtype, weight.dims));
    Graph model = load_model(from_);
    return strip_weights(model, options);
  }

  std::string from_;
  bool same_ = false;
};

}  // namespace

std::unique_ptr<Command> make_surgeon_strip_weights() { return std::make_unique<SurgeonStripWeights>(); }
std::unique_ptr<Command> make_surgeon_restore_weights() { return std::make_unique<SurgeonRestoreWeights>(); }

}  // namespace pare
