#include "engine/build/plan/planner.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/build/lower/lowering.h"
#include "engine/build/plan/plan_forms.h"
#include "engine/numeric/convert.h"
#include "engine/ops/integer/qlinear.h"

namespace pare {
namespace planning {

Planner::Planner(Graph graph, const PlanOptions& options) : graph_(std::move(graph)), options_(options) {}

Dims Planner::sizes(ValueId value) const { return graph_.value(value).shape.sizes(); }

DType Planner::storage(ValueId value) const {
  const DType type = graph_.value(value).dtype;
  if (type != DType::kF32 && type != DType::kF16 && type != DType::kBF16) return type;
  return is_statistic(value) || is_summed_only(value) ? DType::kF32 : options_.precision;
}

bool Planner::feeds_product(ValueId value) const {
  const std::vector<Use>& users = graph_.users(value);
  return std::any_of(users.begin(), users.end(), [&](const Use& use) {
    const Node& node = graph_.node(use.node);
    switch (class_of(use.node)) {
      case NodeClass::kView:
        return std::any_of(node.out.begin(), node.out.end(),
                           [&](ValueId out) { return out != ValueId::kNone && feeds_product(out); });
      case NodeClass::kPointwise:
        return node.is("QuantizeLinear") || node.is("pare", "FakeQuant");
      case NodeClass::kRows:
        return false;
      default:
        return true;
    }
  });
}

bool Planner::is_statistic(ValueId value) const {
  const auto known = statistics_.find(value);
  if (known != statistics_.end()) return known->second;
  bool& answer = statistics_[value] = false;
  const NodeId id = graph_.producer(value);
  if (id == NodeId::kNone || classes_.empty()) return false;
  const Node& node = graph_.node(id);
  bool made = class_of(id) == NodeClass::kRows && node.op.rfind("Reduce", 0) == 0;
  if (class_of(id) == NodeClass::kPointwise || class_of(id) == NodeClass::kView) {
    int computed = 0;
    bool all = true;
    for (const ValueId in : node.in)
      if (in != ValueId::kNone && !graph_.is_constant(in)) ++computed, all = all && is_statistic(in);
    made = all && computed > 0;
  }
  return answer = made && !feeds_product(value);
}

bool Planner::is_summed_only(ValueId value) const {
  const NodeId id = graph_.producer(value);
  if (id == NodeId::kNone || classes_.empty() || graph_.is_output(value)) return false;
  if (class_of(id) != NodeClass::kPointwise && class_of(id) != NodeClass::kView) return false;
  const std::vector<Use>& users = graph_.users(value);
  return !users.empty() && std::all_of(users.begin(), users.end(), [&](const Use& use) {
    const Node& node = graph_.node(use.node);
    if (class_of(use.node) == NodeClass::kRows) return use.slot == 0 && node.op == "ReduceSum";
    return class_of(use.node) == NodeClass::kView && node.out.size() == 1 && is_summed_only(node.out[0]);
  });
}

int Planner::add_tensor(std::string name, DType dtype, Dims dims, PlanRole role) {
  PlanTensor t;
  t.name = std::move(name);
  t.dtype = dtype;
  t.dims = std::move(dims);
  t.role = role;
  plan_.tensors.push_back(std::move(t));
  return static_cast<int>(plan_.tensors.size()) - 1;
}

int Planner::weight(std::string name, Tensor data) {
  const int id = add_tensor(std::move(name), data.dtype(), data.dims(), PlanRole::kWeight);
  tensor(id).data = std::move(data);
  return id;
}

int Planner::weight_as(std::string name, const Tensor& data, DType dtype) {
  if (data.dtype() == dtype) return weight(std::move(name), data);
  Tensor converted = Tensor::allocate(dtype, data.dims());
  convert(data.view(), converted.view());
  return weight(std::move(name), std::move(converted));
}

int Planner::tensor_for(ValueId value, const Dims& dims) {
  const Value& v = graph_.value(value);
  if (graph_.is_output(value) && v.layout == Layout::kPlain && sizes(value) == dims &&
      (v.dtype == DType::kF32 || v.dtype == storage(value))) {
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i)
      if (graph_.outputs[i] == value) return plan_.outputs[i];
  }
  return add_tensor(v.name, storage(value), dims);
}

PlanLayer Planner::start_layer(LayerKind kind, const Node& node) const {
  PlanLayer layer;
  layer.kind = kind;
  layer.name = node.name.empty() ? graph_.value(node.out[0]).name : node.name;
  layer.nodes = {layer.name};
  const auto packed = node.attrs.find("packed");
  if (packed != node.attrs.end())
    if (const auto* names = std::get_if<std::vector<std::string>>(&packed->second)) layer.nodes = *names;
  const bool product = kind == LayerKind::kConv || kind == LayerKind::kGemm;
  layer.requested = layer.realized = options_.tf32 && product ? "tf32" : name(options_.precision);
  return layer;
}

void Planner::classify() {
  classes_.assign(graph_.node_capacity(), NodeClass::kUnknown);
  for (const NodeId id : graph_.nodes()) {
    const Node& node = graph_.node(id);
    std::string why;
    NodeClass& c = classes_[static_cast<std::size_t>(id)];
    if (node.is("pare", "Conv") || node.is("pare", "QConv") || node.is("pare", "MatMul") ||
        node.is("pare", "QMatMul") || node.is("MatMul"))
      c = NodeClass::kLinear;
    else if (node.is("pare", "MaxPool") || node.is("pare", "AveragePool") ||
             node.is("pare", "GlobalAveragePool"))
      c = NodeClass::kPool;
    else if (is_rows(node))
      c = NodeClass::kRows;
    else if (is_view_node(node, why))
      c = NodeClass::kView;
    else if (why.empty() && is_pointwise(node, why))
      c = NodeClass::kPointwise;
    if (c == NodeClass::kUnknown) refused_[id] = why.empty() ? "no layer computes this operator" : why;
  }
}

void Planner::assign_regions() {
  region_.assign(graph_.node_capacity(), NodeId::kNone);
  post_.assign(graph_.node_capacity(), false);
  std::vector<NodeId> order = graph_.nodes();
  const auto at = [&](NodeId id) -> NodeId& { return region_[static_cast<std::size_t>(id)]; };
  const auto region_dims = [&](NodeId root) {
    const Node& node = graph_.node(root);
    return sizes(class_of(root) == NodeClass::kRows ? node.in[0] : node.out[0]);
  };
  // A quantizer (or any function of one value) that alone reads a row kernel's result belongs to it.
  for (const NodeId id : order) {
    if (class_of(id) == NodeClass::kRows) at(id) = id;
    if (class_of(id) != NodeClass::kPointwise) continue;
    const Node& node = graph_.node(id);
    const NodeId before = graph_.producer(node.in[0]);
    ProgramStep step;
    std::string why;
    if (before == NodeId::kNone ||
        (class_of(before) != NodeClass::kRows && !post_[static_cast<std::size_t>(before)]))
      continue;
    if (graph_.only_user(node.in[0]) != id || !step_of_node(graph_, node, step, why) ||
        find_step(step.op)->args != 1)
      continue;
    at(id) = at(before);
    post_[static_cast<std::size_t>(id)] = true;
  }
  std::reverse(order.begin(), order.end());
  for (const NodeId id : order) {
    if (class_of(id) != NodeClass::kPointwise || at(id) != NodeId::kNone) continue;
    const ValueId out = graph_.node(id).out[0];
    NodeId common = NodeId::kNone, rows = NodeId::kNone;
    bool all = !graph_.is_output(out);
    for (const Use& use : graph_.users(out)) {
      const NodeId root = at(use.node);
      const bool inside = root != NodeId::kNone && !post_[static_cast<std::size_t>(use.node)] &&
                          (class_of(use.node) == NodeClass::kPointwise ||
                           (class_of(use.node) == NodeClass::kRows && use.slot == 0)) &&
                          !graph_.node(use.node).is("Concat") && !graph_.node(use.node).is("Gather") &&
                          !graph_.node(use.node).is("pare", "QLookup") && region_dims(root) == sizes(out);
      if (inside && class_of(use.node) == NodeClass::kRows) rows = root;
      all = all && inside && (common == NodeId::kNone || common == root);
      if (inside) common = root;
    }
    if (all && common != NodeId::kNone) {
      at(id) = common;
    } else if (rows != NodeId::kNone) {
      at(id) = rows;
      exports_[rows].push_back(out);
    } else {
      at(id) = id;
    }
  }
}

void Planner::emit_outputs() {
  for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
    const ValueId id = graph_.outputs[i];
    const int target = plan_.outputs[i];
    const PlanView view = view_of(id);
    if (view.tensor == target) continue;
    PlanLayer layer;
    layer.kind = LayerKind::kPointwise;
    layer.name = "output " + graph_.value(id).name;
    layer.nodes = {layer.name};
    layer.requested = layer.realized = name(options_.precision);
    layer.program.dims = view.dims;
    layer.program.results = {leaf(layer.program, layer, view)};
    layer.out = {whole(plan_, target)};
    plan_.layers.push_back(std::move(layer));
  }
}

EnginePlan Planner::run() {
  plan_.precision = options_.tf32 ? "tf32" : name(options_.precision);
  for (const ValueId id : graph_.inputs) {
    const Value& value = graph_.value(id);
    const int t = add_tensor(value.name, value.dtype, sizes(id), PlanRole::kInput);
    plan_.inputs.push_back(t);
    placed_[id] = whole(plan_, t);
  }
  for (const ValueId id : graph_.outputs) {
    const Value& value = graph_.value(id);
    if (!value.shape.concrete())
      throw make_error(ErrorCode::kUnsupported, "the size of output '{}' is not known before it runs",
                       value.name)
          .hint("give the engine one: `pare surgeon set-shape`, or --profile");
    plan_.outputs.push_back(add_tensor(value.name, value.dtype, sizes(id), PlanRole::kOutput));
  }
  classify();
  match_attention();
  for (const NodeId id : graph_.nodes())
    if (class_of(id) == NodeClass::kTaken || class_of(id) == NodeClass::kAttention) refused_.erase(id);
  if (!refused_.empty()) {
    std::string list;
    int shown = 0;
    for (const auto& [id, why] : refused_) {
      const Node& node = graph_.node(id);
      if (++shown <= 20) list += fmt::format("\n  {} '{}': {}", node.op, node.name, why);
    }
    throw make_error(ErrorCode::kUnsupported, "the engine has no layer for {} nodes:{}", refused_.size(),
                     list)
        .hint("such a model runs on the CPU: pare infer, pare bench");
  }
  assign_regions();
  for (const NodeId id : graph_.nodes()) {
    switch (class_of(id)) {
      case NodeClass::kLinear:
        if (graph_.node(id).is("pare", "Conv") || graph_.node(id).is("pare", "QConv"))
          emit_conv(id);
        else
          emit_product(id);
        break;
      case NodeClass::kPool:
        emit_pool(id);
        break;
      case NodeClass::kRows:
        if (emitted_.count(id) == 0 && !fold_norm(id)) emit_region(id);
        break;
      case NodeClass::kAttention:
        emit_attention(attention_.at(id));
        break;
      default:
        break;  // on demand
    }
  }
  emit_outputs();
  return std::move(plan_);
}

}  // namespace planning

void set_precision(PlanOptions& options, const std::string& precision) {
  options.tf32 = precision == "tf32";
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16})
    if (precision == name(type) || (options.tf32 && type == DType::kF32)) {
      options.precision = type;
      return;
    }
  fail(ErrorCode::kBadFile, "the engine stores values as '{}', which is not known", precision);
}

EnginePlan plan_lowered(Graph lowered, const PlanOptions& options) {
  planning::expand_lowered(lowered);
  planning::merge_products(lowered);
  EnginePlan plan = planning::Planner(std::move(lowered), options).run();
  hash_weights(plan);
  return plan;
}

EnginePlan make_plan(const Graph& graph, const PlanOptions& options) {
  LowerOptions lower;
  lower.integer = options.integer;
  lower.tensor_cores = true;
  Graph source = graph;
  planning::expand_before_lowering(source);
  const Lowered lowered = lower_for_cpu(source, lower);
  Graph copy = *lowered.graph;
  planning::expand_lowered(copy);
  planning::merge_products(copy);
  planning::quantize_before_pools(copy);
  planning::Planner planner(std::move(copy), options);
  EnginePlan plan = planner.run();
  if (options.shortcuts) planning::absorb_shortcuts(plan);
  hash_weights(plan);
  plan.realized = lowered.realized;
  for (Realized& row : plan.realized) {
    if (row.realized.find("kernel") != std::string::npos) continue;
    const auto absorbed = planner.realized().find(row.node);
    if (absorbed != planner.realized().end()) {
      row.realized = absorbed->second;
      row.why.clear();
      continue;
    }
    row.realized = plan.precision + " (fake-quantized)";
  }
  return plan;
}

}  // namespace pare
