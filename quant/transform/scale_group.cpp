#include "quant/transform/scale_group.h"

#include <algorithm>

#include "engine/base/error.h"
#include "quant/grid/linear_weight.h"

namespace pare::quant {
namespace {

// MatMul and Gemm sum over the last axis, Conv over axis 1. -1: of no known rank.
int reduced_axis(const Graph& graph, const Node& node) {
  const int rank = graph.value(node.in[0]).shape.rank();
  return node.is("Conv") && rank > 0 ? 1 : rank - 1;
}

// The linear nodes that read x along one axis with weights of their own.
void collect_consumers(const Graph& graph, ScaleGroup& group) {
  for (const Use& use : graph.users(group.value)) {
    const Node& node = graph.node(use.node);
    WeightView view;
    if (use.slot != 0 || !view_weight(graph, node, view) || graph.users(node.in[1]).size() != 1 ||
        graph.is_output(node.in[1]))
      continue;
    const int axis = reduced_axis(graph, node);
    if (axis < 1 || std::count(node.in.begin(), node.in.end(), group.value) != 1) continue;
    if (group.consumers.empty()) {
      group.channel_axis = axis;
      group.channels = view.ins * view.groups;
    }
    if (axis == group.channel_axis && view.ins * view.groups == group.channels)
      group.consumers.push_back(use.node);
  }
}

void find_in(const Graph& graph, const SubgraphPath& path, bool clips, std::vector<ScaleGroup>& groups) {
  std::vector<bool> seen(graph.value_count(), false);
  for (const NodeId id : graph.nodes()) {
    WeightView view;
    if (!view_weight(graph, graph.node(id), view)) continue;
    const ValueId x = graph.node(id).in[0];
    const auto at = static_cast<std::size_t>(x);
    if (x == ValueId::kNone || seen[at] || graph.is_constant(x) || graph.value(x).dtype != DType::kF32)
      continue;
    seen[at] = true;
    ScaleGroup group;
    group.path = path;
    group.value = x;
    collect_consumers(graph, group);
    if (group.consumers.empty()) continue;
    group.folded =
        find_channel_fold(graph, x, group.channel_axis, group.channels, group.consumers, clips, group.fold);
    groups.push_back(std::move(group));
  }
}

// Mul(x, 1 / s) in front of the consumers.
void insert_mul(Graph& graph, ScaleGroup& group, const std::vector<float>& s) {
  const Value& x = graph.value(group.value);
  Dims dims(static_cast<std::size_t>(x.shape.rank() - group.channel_axis), 1);
  dims[0] = group.channels;
  Tensor row = Tensor::allocate(DType::kF32, dims);
  for (std::size_t c = 0; c < s.size(); ++c) row.mut<float>()[c] = 1.0f / s[c];
  Value y;
  y.name = x.name + "_scaled";
  y.dtype = x.dtype;
  y.shape = x.shape;
  Node mul;
  mul.name = x.name + "_scale_channels";
  mul.op = "Mul";
  mul.in = {group.value, graph.add_constant(x.name + "_channel_scales", std::move(row))};
  mul.out = {graph.add_value(std::move(y))};
  const ValueId scaled = mul.out[0];
  NodeId first = group.consumers.front();
  for (const NodeId id : graph.nodes())
    if (std::find(group.consumers.begin(), group.consumers.end(), id) != group.consumers.end()) {
      first = id;
      break;
    }
  graph.insert_before(first, std::move(mul));
  for (const NodeId id : group.consumers) graph.set_input(id, 0, scaled);
  group.value = scaled;
}

}  // namespace

std::vector<ScaleGroup> find_scale_groups(const Graph& whole, bool clips) {
  std::vector<ScaleGroup> groups;
  walk_graphs(whole,
              [&](const SubgraphPath& path, const Graph& graph) { find_in(graph, path, clips, groups); });
  return groups;
}

bool apply_scales(Graph& whole, ScaleGroup& group, const std::vector<float>& s) {
  PARE_ASSERT(s.size() == static_cast<std::size_t>(group.channels));
  Graph& graph = own_subgraph_at(whole, group.path);
  if (group.folded) {
    // The places as they are now: another group may have made rows of the limits of a Clip.
    const bool clips = std::any_of(group.fold.edits.begin(), group.fold.edits.end(),
                                   [](const FoldEdit& edit) { return edit.limits; });
    if (!find_channel_fold(graph, group.value, group.channel_axis, group.channels, group.consumers, clips,
                           group.fold))
      return false;
    apply_channel_fold(graph, group.fold, s);
  } else {
    insert_mul(graph, group, s);
  }
  for (const NodeId id : group.consumers) {
    WeightView view;
    const bool linear = view_weight(graph, graph.node(id), view);
    PARE_ASSERT(linear);
    Tensor weight = graph.value(graph.node(id).in[1]).constant.clone();
    float* w = weight.mut<float>();
    for (std::int64_t o = 0; o < view.outs; ++o)
      for (std::int64_t i = 0; i < view.ins; ++i)
        for (std::int64_t t = 0; t < view.taps; ++t)
          w[view.at(o, i, t)] *= s[static_cast<std::size_t>(view.channel(o, i))];
    graph.value(graph.node(id).in[1]).constant = std::move(weight);
  }
  return true;
}

}  // namespace pare::quant
