#include "engine/build/lower_cpu.h"

#include "engine/base/error.h"
#include "engine/build/lower_codes.h"
#include "engine/build/lower_integer.h"
#include "engine/build/lowering.h"
#include "engine/ir/schema.h"
#include "engine/run/evaluate.h"

namespace pare {
namespace lowering {
namespace {

void replace_by_constants(Graph& graph, NodeId id, const std::vector<Tensor>& results) {
  const std::vector<ValueId> outs = graph.node(id).out;
  graph.remove_node(id);
  for (std::size_t i = 0; i < outs.size(); ++i) {
    if (outs[i] == ValueId::kNone) continue;
    Value& value = graph.value(outs[i]);
    value.constant = results[i];
    value.dtype = results[i].dtype();
    value.shape = Shape(results[i].dims());
  }
}

}  // namespace

void fold_constants(Graph& graph) {
  for (const NodeId id : graph.nodes())
    if (is_foldable(graph, graph.node(id)))
      replace_by_constants(graph, id, evaluate_constant_node(graph, graph.node(id)));
}

namespace {

bool same_parameter(const Graph& graph, ValueId a, ValueId b) {
  if (a == b) return true;
  return graph.is_constant(a) && graph.is_constant(b) &&
         equal_bytes(graph.value(a).constant, graph.value(b).constant);
}

ValueId input_or_none(const Node& node, std::size_t i) {
  return i < node.in.size() ? node.in[i] : ValueId::kNone;
}

}  // namespace

void fuse_fake_quant(Graph& graph, const Kept& kept) {
  for (const NodeId id : graph.nodes()) {
    if (!graph.alive(id) || !graph.node(id).is("DequantizeLinear")) continue;
    const Node dq = graph.node(id);
    const NodeId q_id = graph.producer(dq.in[0]);
    if (q_id == NodeId::kNone || !graph.node(q_id).is("QuantizeLinear") || kept(dq.in[0])) continue;
    const Node q = graph.node(q_id);
    if (!same_parameter(graph, q.in[1], dq.in[1]) ||
        !same_parameter(graph, input_or_none(q, 2), input_or_none(dq, 2)) ||
        q.attr("axis", std::int64_t{1}) != dq.attr("axis", std::int64_t{1}) ||
        q.attr("block_size", std::int64_t{0}) != dq.attr("block_size", std::int64_t{0}) ||
        graph.value(q.in[0]).dtype != DType::kF32 || graph.value(dq.out[0]).dtype != DType::kF32)
      continue;
    Node fused = q;
    fused.domain = "pare";
    fused.op = "FakeQuant";
    fused.name = q.name;
    fused.out = dq.out;
    fused.attrs["code_dtype"] = static_cast<std::int64_t>(graph.value(q.out[0]).dtype);
    graph.remove_node(id);
    graph.insert_after(q_id, std::move(fused));
    if (graph.users(q.out[0]).empty() && !graph.is_output(q.out[0])) graph.remove_node(q_id);
  }
}

}  // namespace lowering

namespace {

void remove_dead_nodes(Graph& graph) {
  const std::vector<NodeId> order = graph.nodes();
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    bool used = false;
    for (const ValueId out : graph.node(*it).out)
      used = used || (out != ValueId::kNone && (!graph.users(out).empty() || graph.is_output(out)));
    if (!used) graph.remove_node(*it);
  }
}

}  // namespace

ValueId Lowered::find(ValueId source) const {
  const auto i = static_cast<std::size_t>(source);
  return i < twin.size() ? twin[i] : ValueId::kNone;
}

Lowered lower_for_cpu(const Graph& source, const LowerOptions& options) {
  Lowered lowered;
  auto graph = std::make_shared<Graph>(source);
  lowering::Kept kept;
  kept.flags.resize(graph->value_count(), false);
  for (const ValueId id : options.keep) kept.flags[static_cast<std::size_t>(id)] = true;
  for (const ValueId id : graph->outputs) kept.flags[static_cast<std::size_t>(id)] = true;

  infer_shapes(*graph);
  lowered.twin.assign(graph->value_count(), ValueId::kNone);
  lowering::expand_qlinear(*graph);
  lowered.realized = lowering::lower_integer(*graph, kept, {options.integer, options.fuse});
  if (options.integer && options.fuse) lowering::lower_codes(*graph, kept, lowered.realized);
  lowering::fold_constants(*graph);
  lowering::fuse_fake_quant(*graph, kept);
  if (options.fuse) lowering::fuse_pointwise(*graph, kept);
  if (options.fuse) lowering::fuse_linear(*graph, kept);
  if (options.channels_last) lowering::assign_layout(*graph, lowered.twin);
  // What is watched counts as used: it must survive although nothing else reads it.
  std::vector<ValueId> outputs = graph->outputs;
  for (const ValueId id : options.keep) {
    const ValueId twin = lowered.find(id);
    graph->outputs.push_back(twin == ValueId::kNone ? id : twin);
  }
  remove_dead_nodes(*graph);
  graph->outputs = std::move(outputs);
  for (std::size_t i = 0; i < lowered.twin.size(); ++i) {
    const auto id = static_cast<ValueId>(i);
    const Value& value = graph->value(id);
    if (value.producer != NodeId::kNone || value.is_constant() || graph->is_input(id)) lowered.twin[i] = id;
  }
  graph->drop_unused_values();
  infer_shapes(*graph);
  verify(*graph);
  lowered.graph = std::move(graph);
  return lowered;
}

}  // namespace pare
