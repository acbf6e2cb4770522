#include "recipes/checkpoint/plan_source.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/base/absent_tensor.h"
#include "engine/base/error.h"
#include "engine/numeric/convert.h"
#include "graphsurgeon/families/family.h"
#include "graphsurgeon/simplify.h"
#include "recipes/checkpoint/quantized_layers.h"

namespace pare {
namespace {

const quant::ActivationSite* input_site(const quant::Placement& placement, NodeId node, std::size_t& index) {
  for (std::size_t i = 0; i < placement.activations.size(); ++i) {
    const quant::ActivationSite& site = placement.activations[i];
    if (!site.path.empty()) continue;
    for (const Use& use : site.uses)
      if (use.node == node && use.slot == 0) {
        index = i;
        return &site;
      }
  }
  return nullptr;
}

class PlanSource final : public QuantizedSource {
 public:
  PlanSource(const Checkpoint& checkpoint, const QuantizeOutcome& outcome, const Graph* given)
      : checkpoint_(checkpoint), outcome_(outcome) {
    const std::vector<LinearModule> modules = linear_modules(checkpoint);
    std::map<std::string, std::size_t> by_name;
    for (std::size_t i = 0; i < modules.size(); ++i) by_name[modules[i].module] = i;
    std::set<std::string> coded, layered;
    for (std::size_t i = 0; i < outcome.plan.weights.size(); ++i) {
      const quant::WeightSite& site = outcome.plan.placement.weights[i];
      const Node& node = outcome.source.node(site.uses.at(0).node);
      const auto found = site.path.empty() ? by_name.find(node.name) : by_name.end();
      if (found == by_name.end() || site.uses.size() != 1)
        throw make_error(ErrorCode::kUnsupported, "a checkpoint holds codes of linear layers alone")
            .at(fmt::format("node '{}'", node.name))
            .hint("leave it in float with --exclude (quantize.ignore)");
      const LinearModule& module = modules[found->second];
      std::size_t input = 0;
      const quant::ActivationSite* activation = input_site(outcome.plan.placement, site.uses[0].node, input);
      layers_.push_back({i, activation == nullptr ? -1 : static_cast<int>(input)});
      model_.layers.push_back(
          linear_format(module, site.format, activation == nullptr ? quant::Format{} : activation->format));
      layered.insert(module.module);
      if (module.tied)
        model_.untied = true;
      else
        coded.insert(module.weight);
    }
    add_cache_scales();
    const Graph original = given != nullptr ? *given : build_graph(checkpoint);
    refuse_new_nodes(original);
    for (const LinearModule& module : modules)
      if (layered.count(module.module) == 0) model_.ignored.push_back(module.module);
    add_floats(original, coded);
    model_.folder = checkpoint.path;
  }

  const QuantizedModel& model() const override { return model_; }

  Tensor float_tensor(const std::string& name) const override {
    const auto changed = changed_.find(name);
    return changed != changed_.end() ? changed->second : checkpoint_.weights->get(name);
  }

  QuantizedLinear layer(std::size_t index) const override {
    QuantizedLinear layer;
    static_cast<LinearFormat&>(layer) = model_.layers.at(index);
    const Place& place = layers_[index];
    set_codes(layer, outcome_.plan.placement.weights[place.weight], outcome_.plan.weights[place.weight]);
    if (place.input >= 0 && !layer.inputs.dynamic) {
      const quant::ActivationPlan& plan = outcome_.plan.activations[static_cast<std::size_t>(place.input)];
      layer.input_scale = plan.scale;
      layer.input_zero = plan.zero_point;
    }
    return layer;
  }

 private:
  void add_cache_scales() {
    std::map<std::string, KvScales> by_module;
    for (std::size_t i = 0; i < outcome_.plan.activations.size(); ++i) {
      const quant::ActivationSite& site = outcome_.plan.placement.activations[i];
      const bool key = site.rule == quant::kKeyRule;
      if (!key && site.rule != quant::kValueRule) continue;
      model_.kv_cache = site.format.dtype;
      for (const Use& use : site.uses) {
        // "model.layers.0.self_attn.attention"
        const std::string& node = outcome_.source.node(use.node).name;
        KvScales& scales = by_module[node.substr(0, node.rfind('.'))];
        (key ? scales.key : scales.value) = outcome_.plan.activations[i].scale;
      }
    }
    for (auto& [module, scales] : by_module) {
      scales.attention = module;
      model_.kv_scales.push_back(scales);
    }
  }

  struct Place {
    std::size_t weight;
    int input;  // of plan.activations
  };

  // The plan began with the graph of the checkpoint, simplified or not: nodes of either are no additions.
  void refuse_new_nodes(const Graph& original) const {
    const auto names_of = [](const Graph& graph) {
      std::map<std::string, int> names;
      for (const NodeId id : graph.nodes()) ++names[graph.node(id).op + " " + graph.node(id).name];
      return names;
    };
    std::map<std::string, int> known = names_of(original);
    Graph simple = original;
    SimplifyOptions options;
    options.self_check = false;
    simplify(simple, options);
    for (const auto& [name, count] : names_of(simple)) known[name] = std::max(known[name], count);
    for (const NodeId id : outcome_.source.nodes()) {
      const Node& node = outcome_.source.node(id);
      if (--known[node.op + " " + node.name] < 0)
        throw make_error(ErrorCode::kUnsupported,
                         "the method added {} '{}', which no tensor of a checkpoint "
                         "holds",
                         node.op, node.name)
            .at("export")
            .hint("export qdq_onnx, or take a method without factors that cannot be folded (gptq, search)");
    }
  }

  // The constant that readers of `was` read now. Its name does not tell: simplification makes one of equal
  // constants (norms that are all ones), a fold gives a reader one of its own.
  ValueId what_became_of(const Graph& original, ValueId was,
                         const std::map<std::string, NodeId>& places) const {
    const Graph& now = outcome_.source;
    for (const Use& use : original.users(was)) {
      const Node& reader = original.node(use.node);
      const auto place = reader.name.empty() ? places.end() : places.find(reader.name);
      if (place == places.end()) continue;
      const Node& node = now.node(place->second);
      if (node.op != reader.op || static_cast<std::size_t>(use.slot) >= node.in.size()) continue;
      const ValueId in = node.in[static_cast<std::size_t>(use.slot)];
      if (in != ValueId::kNone && now.is_constant(in)) return in;
    }
    return now.find_value(original.value(was).name);
  }

  void add_floats(const Graph& original, const std::set<std::string>& coded) {
    std::map<std::string, NodeId> places;
    for (const NodeId id : outcome_.source.nodes()) places.emplace(outcome_.source.node(id).name, id);
    for (const WeightStore::Entry& entry : checkpoint_.weights->entries()) {
      if (coded.count(entry.name) != 0 || (model_.untied && entry.name == "lm_head.weight")) continue;
      FloatTensor tensor{entry.name, DType::kF32, entry.dims};
      dtype_from_name(entry.type, tensor.dtype);
      const ValueId was = original.find_value(entry.name);
      const ValueId is = was == ValueId::kNone ? was : what_became_of(original, was, places);
      if (is != ValueId::kNone && !is_absent(outcome_.source.value(is).constant) &&
          !same_values(original.value(was).constant, outcome_.source.value(is).constant)) {
        Tensor value = outcome_.source.value(is).constant;
        if (value.dims() != entry.dims)
          throw make_error(ErrorCode::kUnsupported, "the method changed '{}', a matrix that stays float",
                           entry.name)
              .at("export")
              .hint("export an ONNX model, or take a method without transforms (method: gptq)");
        const Tensor first = checkpoint_.weights->get(entry.name);
        value = without_offset(value, original.value(was).constant, first);
        tensor.dtype = DType::kF32;
        changed_[entry.name] = std::move(value);
      }
      model_.floats.push_back(std::move(tensor));
    }
  }

  // The same constant, or a view of the checkpoint's [outs, ins] and what became of it: float32, turned or
  // not.
  static bool same_values(const Tensor& was, const Tensor& is) {
    if (equal_bytes(was, is)) return true;
    if (was.dtype() == DType::kF32 && was.dims() == is.dims()) return false;
    const Dims& dims = was.dims();
    if (is.dtype() != DType::kF32 || dims.size() != 2 || was.size() != is.size() || !is_float(was.dtype()))
      return false;
    const bool turned = is.dims() == Dims{dims[1], dims[0]} && is.dims() != dims;
    const std::int64_t rows = dims[0], columns = dims[1], row_bytes = columns * bits(was.dtype()) / 8;
    std::vector<float> row(static_cast<std::size_t>(columns));
    const auto* x = is.as<float>();
    const auto same = [&](bool turn) {
      for (std::int64_t r = 0; r < rows; ++r) {
        decode(was.dtype(), was.as<std::byte>() + r * row_bytes, row.data(), columns);
        for (std::int64_t c = 0; c < columns; ++c)
          if (x[turn ? c * rows + r : r * columns + c] != row[static_cast<std::size_t>(c)]) return false;
      }
      return true;
    };
    return same(turned) || (rows == columns && same(true));
  }

  // Norms of Gemma are 1 + w in the graph.
  static Tensor without_offset(const Tensor& value, const Tensor& was, const Tensor& stored) {
    if (stored.size() == 0) return value;
    std::vector<float> first(static_cast<std::size_t>(stored.size()));
    decode(stored.dtype(), stored.data(), first.data(), stored.size());
    const float offset = was.as<float>()[0] - first[0];
    if (offset == 0) return value;
    Tensor out = value.clone();
    for (std::int64_t i = 0; i < out.size(); ++i) out.mut<float>()[i] -= offset;
    return out;
  }

  const Checkpoint& checkpoint_;
  const QuantizeOutcome& outcome_;
  QuantizedModel model_;
  std::vector<Place> layers_;  // by model_.layers
  std::map<std::string, Tensor> changed_;
};

}  // namespace

std::unique_ptr<QuantizedSource> plan_source(const Checkpoint& checkpoint, const QuantizeOutcome& outcome,
                                             const Graph* original) {
  return std::make_unique<PlanSource>(checkpoint, outcome, original);
}

void make_globals_turnable(QuantizeOutcome& outcome) {
  bool changed = false;
  for (quant::WeightPlan& weight : outcome.plan.weights) {
    if (weight.global.empty()) continue;
    const float global = *weight.global.as<float>(), turnable = turnable_global(global);
    if (turnable == global) continue;
    weight.global = Tensor::scalar(turnable);
    changed = true;
  }
  for (std::size_t i = 0; i < outcome.plan.activations.size(); ++i) {
    const quant::Format& format = outcome.plan.placement.activations[i].format;
    float& scale = outcome.plan.activations[i].scale;
    if (format.dynamic || format.scales != DType::kE4M3FN || turnable_input(scale) == scale) continue;
    scale = turnable_input(scale);
    changed = true;
  }
  if (!changed) return;
  std::map<std::string, std::string> metadata = outcome.quantized.metadata;
  outcome.quantized = quant::apply(outcome.source, outcome.plan);
  outcome.quantized.metadata = std::move(metadata);
}

}  // namespace pare
