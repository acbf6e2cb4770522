#include "engine/build/lower/lower_cpu.h"

#include "engine/base/error.h"
#include "engine/build/lower/lower_codes.h"
#include "engine/build/lower/lower_integer.h"
#include "engine/build/lower/lowering.h"
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
    if (is_foldable(graph, graph.node(id))) {
      try {
        replace_by_constants(graph, id, evaluate_constant_node(graph, graph.node(id)));
      } catch (const Error& error) {  // it fails in a run too, and only there if it is ever run
        if (error.code() != ErrorCode::kUnsupported && error.code() != ErrorCode::kBadFile) throw;
      }
    }
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

namespace {

// Powers of two as float32, which FakeQuant takes.
ValueId widened_scale(Graph& graph, ValueId scale, NodeId before) {
  Value value = {};
  value.name = graph.value(scale).name + "_float";
  value.dtype = DType::kF32;
  value.shape = graph.value(scale).shape;
  Node cast;
  cast.op = "Cast";
  cast.name = value.name;
  cast.in = {scale};
  cast.out = {graph.add_value(std::move(value))};
  cast.attrs["to"] = static_cast<std::int64_t>(DType::kF32);
  const ValueId out = cast.out[0];
  graph.insert_before(before, std::move(cast));
  return out;
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
    if (graph.value(q.in[1]).dtype == DType::kE8M0) fused.in[1] = widened_scale(graph, q.in[1], q_id);
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

namespace {

ValueId twin_in(const std::vector<ValueId>& twin, ValueId source) {
  const auto i = static_cast<std::size_t>(source);
  return i < twin.size() ? twin[i] : ValueId::kNone;
}

// One graph, after those inside it. Shapes are inferred before and after, for all of them together.
class ScopeLowering {
 public:
  ScopeLowering(const LowerOptions& options, Lowered& lowered) : options_(options), lowered_(lowered) {}

  void run(Graph& graph, const SubgraphPath& path) {
    for (const NodeId id : graph.nodes())
      for (const std::string& key : subgraph_attributes(graph.node(id))) {
        SubgraphPath inner = path;
        inner.push_back({id, key});
        run(own_subgraph_at(graph, {{id, key}}), inner);
      }
    const auto asked = options_.keep_inside.find(path);
    const std::vector<ValueId> keep = path.empty()                          ? options_.keep
                                      : asked == options_.keep_inside.end() ? std::vector<ValueId>{}
                                                                            : asked->second;
    std::vector<ValueId>& twin = path.empty() ? lowered_.twin : lowered_.inside[path];
    lower(graph, keep, twin);
  }

 private:
  void lower(Graph& graph, const std::vector<ValueId>& keep, std::vector<ValueId>& twin) {
    lowering::Kept kept;
    kept.flags.resize(graph.value_count(), false);
    for (const ValueId id : keep) kept.flags[static_cast<std::size_t>(id)] = true;
    for (const ValueId id : graph.outputs) kept.flags[static_cast<std::size_t>(id)] = true;
    twin.assign(graph.value_count(), ValueId::kNone);
    lowering::expand_qlinear(graph);
    std::vector<Realized> rows =
        lowering::lower_integer(graph, kept, {options_.integer, options_.fuse, options_.tensor_cores});
    if (options_.integer && options_.fuse) lowering::lower_codes(graph, kept, rows);
    lowered_.realized.insert(lowered_.realized.end(), rows.begin(), rows.end());
    if (options_.fuse && !options_.tensor_cores) lowering::lower_weight_only(graph, kept);
    lowering::fold_constants(graph);
    lowering::fuse_fake_quant(graph, kept);
    if (options_.fuse) lowering::widen_halves(graph);
    if (options_.fuse) lowering::fuse_pointwise(graph, kept);
    if (options_.fuse) lowering::fuse_linear(graph, kept);
    if (options_.channels_last) lowering::assign_layout(graph, twin);
    // What is watched counts as used: it must survive although nothing else reads it.
    std::vector<ValueId> outputs = graph.outputs;
    for (const ValueId id : keep) {
      const ValueId moved = twin_in(twin, id);
      graph.outputs.push_back(moved == ValueId::kNone ? id : moved);
    }
    remove_dead_nodes(graph);
    graph.outputs = std::move(outputs);
    for (std::size_t i = 0; i < twin.size(); ++i) {
      const auto id = static_cast<ValueId>(i);
      const Value& value = graph.value(id);
      if (value.producer != NodeId::kNone || value.is_constant() || graph.is_input(id) ||
          is_captured(graph, id))
        twin[i] = id;
    }
    graph.drop_unused_values();
  }

  const LowerOptions& options_;
  Lowered& lowered_;
};

}  // namespace

ValueId Lowered::find(ValueId source) const { return twin_in(twin, source); }

ValueId Lowered::find(const SubgraphPath& path, ValueId source) const {
  if (path.empty()) return find(source);
  const auto found = inside.find(path);
  return found == inside.end() ? ValueId::kNone : twin_in(found->second, source);
}

Lowered lower_for_cpu(const Graph& source, const LowerOptions& options) {
  Lowered lowered;
  auto graph = std::make_shared<Graph>(source);
  pull_in_constants(*graph);
  infer_shapes(*graph);
  ScopeLowering(options, lowered).run(*graph, {});
  infer_shapes(*graph);
  verify(*graph);
  lowered.graph = std::move(graph);
  return lowered;
}

}  // namespace pare
