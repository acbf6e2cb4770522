#include "recipes/checkpoint/planned_layers.h"

#include "engine/base/error.h"
#include "graphsurgeon/checkpoint/dialect.h"
#include "graphsurgeon/gguf/gguf_write.h"
#include "quant/placement/rules.h"
#include "recipes/checkpoint/quantized_layers.h"

namespace pare {
namespace {

// Layers without numbers, for those who ask what they are.
class FormatsAlone final : public QuantizedSource {
 public:
  explicit FormatsAlone(QuantizedModel model) : model_(std::move(model)) {}
  const QuantizedModel& model() const override { return model_; }
  QuantizedLinear layer(std::size_t) const override { fail(ErrorCode::kInternal, "there are no codes yet"); }
  Tensor float_tensor(const std::string&) const override {
    fail(ErrorCode::kInternal, "there are no values here");
  }

 private:
  QuantizedModel model_;
};

}  // namespace

std::string why_float(const LinearModule& module, bool quantize_head) {
  if (module.router) return "it chooses experts";
  if (module.module != "lm_head" || quantize_head) return "";
  return fmt::format(
      "{} unless export.head (--quantize-head) asks for it",
      module.tied ? "the head shares the embedding, and both stay float" : "the head stays float");
}

PlannedLayers planned_layers(const Checkpoint& checkpoint, const quant::Spec& spec, bool quantize_head) {
  PlannedLayers planned;
  const std::vector<LinearModule> modules = linear_modules(checkpoint, planned.graph);
  const quant::RuleBook rules(spec);
  std::vector<quant::LayerGroups> groups;
  for (const LinearModule& module : modules) {
    const quant::Resolved resolved = rules.resolve(planned.graph, planned.graph.node(module.node));
    std::string why = why_float(module, quantize_head);
    if (why.empty()) why = resolved.why_not;
    if (!resolved.quantize || !resolved.weights.active() || !why.empty()) {
      planned.left.push_back({module.module, why.empty() ? "no format for it" : why});
      continue;
    }
    groups.push_back({module.module, module.ins, 1, resolved.weights});
    planned.layers.push_back({module, resolved.weights, resolved.activations, resolved.method});
  }
  quant::check_groups(groups);
  for (PlannedLayer& layer : planned.layers)
    layer.weights = quant::fit_block(layer.weights, layer.module.ins, 1, spec.target, layer.module.module);
  return planned;
}

void check_held(const Checkpoint& checkpoint, Dialect dialect, const PlannedLayers& planned, DType kv_cache) {
  QuantizedModel model;
  for (const PlannedLayer& layer : planned.layers)
    model.layers.push_back(linear_format(layer.module, layer.weights, layer.inputs));
  model.kv_cache = kv_cache;
  if (dialect != Dialect::kGguf) return check_dialect(dialect, model);
  const FormatsAlone source(std::move(model));
  GgufWriteOptions options;
  options.layers = &source;
  check_gguf_model(checkpoint, options);
}

}  // namespace pare
