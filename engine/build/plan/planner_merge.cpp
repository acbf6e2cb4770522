// Changes of the lowered graph in front of planning: products of one input are packed into one (q, k, v),
// quantizers behind pools move in front of them.
#include <algorithm>
#include <cstring>

#include "engine/base/error.h"
#include "engine/build/plan/planner.h"
#include "engine/build/plan/program.h"
#include "engine/numeric/convert.h"
#include "engine/ops/integer/qlinear.h"

namespace pare::planning {
namespace {

bool is_packable(const Graph& graph, const Node& node) {
  return node.is("pare", "MatMul") && graph.is_constant(node.in[1]) &&
         graph.value(node.in[1]).shape.rank() == 2 && graph.value(node.in[1]).dtype == DType::kF32 &&
         node.in.size() <= 3 && node.attr("activation", "").empty() && node.attr("alpha", 1.0f) == 1.0f;
}

// Whoever read one of the products reads a part of the packed one.
void slice_again(Graph& graph, const std::vector<NodeId>& group, const std::vector<std::int64_t>& widths,
                 ValueId value, std::int64_t last) {
  std::int64_t at = 0;
  for (std::size_t g = 0; g < group.size(); ++g) {
    const Node old = graph.node(group[g]);
    Node slice;
    slice.op = "Slice";
    slice.name = old.name;
    const auto ints = [&](std::int64_t v) { return graph.add_constant("packed_at", Tensor::ints({v})); };
    slice.in = {value, ints(at), ints(at + widths[g]), ints(last)};
    slice.out = old.out;
    const NodeId place =
        graph.insert_before(group[g], Node{slice.name, "", "Slice", slice.in, {}, -1, {}, nullptr});
    graph.remove_node(group[g]);
    graph.set_output(place, 0, old.out[0]);
    at += widths[g];
  }
}

// The product of all in place of the group: its last axis is `total` wide, and each old output a slice of it.
void put_packed(Graph& graph, const std::vector<NodeId>& group, const std::vector<std::int64_t>& widths,
                Node packed, std::int64_t total) {
  Value result = graph.value(graph.node(group[0]).out[0]);
  const auto last = static_cast<std::int64_t>(result.shape.dims.size()) - 1;
  result.name += "_packed";
  result.origin.clear();
  result.producer = NodeId::kNone;
  result.shape.dims.back() = Dim::of(total);
  const ValueId value = graph.add_value(std::move(result));
  packed.out = {value};
  std::vector<std::string> names;
  for (const NodeId id : group) names.push_back(graph.node(id).name);
  packed.attrs["packed"] = std::move(names);
  graph.insert_before(group[0], std::move(packed));
  slice_again(graph, group, widths, value, last);
}

void pack(Graph& graph, const std::vector<NodeId>& group) {
  std::int64_t total = 0, k = 0;
  std::vector<std::int64_t> widths;
  const bool biased = graph.node(group[0]).in.size() > 2;
  for (const NodeId id : group) {
    const Node& node = graph.node(id);
    const Dims& d = graph.value(node.in[1]).constant.dims();
    const bool trans = node.attr("trans_b", std::int64_t{0}) != 0;
    widths.push_back(trans ? d[0] : d[1]);
    k = trans ? d[1] : d[0];
    total += widths.back();
  }
  Tensor w = Tensor::allocate(DType::kF32, {total, k}), bias = Tensor::allocate(DType::kF32, {total});
  std::int64_t at = 0;
  for (std::size_t g = 0; g < group.size(); ++g) {
    const Node& node = graph.node(group[g]);
    const float* from = graph.value(node.in[1]).constant.as<float>();
    const bool trans = node.attr("trans_b", std::int64_t{0}) != 0;
    for (std::int64_t n = 0; n < widths[g]; ++n)
      for (std::int64_t i = 0; i < k; ++i)
        w.mut<float>()[(at + n) * k + i] = trans ? from[n * k + i] : from[i * widths[g] + n];
    if (biased)
      std::memcpy(bias.mut<float>() + at, graph.value(node.in[2]).constant.data(),
                  static_cast<std::size_t>(widths[g]) * sizeof(float));
    at += widths[g];
  }
  const Node first = graph.node(group[0]);
  Node packed = first;
  packed.attrs["trans_b"] = std::int64_t{1};
  packed.in[1] = graph.add_constant(graph.value(first.in[1]).name + "_packed", std::move(w));
  if (biased) packed.in[2] = graph.add_constant(graph.value(first.in[2]).name + "_packed", std::move(bias));
  put_packed(graph, group, widths, std::move(packed), total);
}

bool is_packable_codes(const Graph& graph, const Node& node) {
  if (!node.is("pare", "QMatMul") || !graph.is_constant(node.in[kQW]) ||
      graph.value(node.in[kQW]).shape.rank() != 2)
    return false;
  for (std::size_t slot = kQYScale; slot < node.in.size(); ++slot)
    if (node.in[slot] != ValueId::kNone) return false;
  return node.attr("activation", "").empty() && graph.value(node.in[kQWScale]).dtype == DType::kF32;
}

// The same of codes; every product keeps its scales, column by column.
void pack_codes(Graph& graph, const std::vector<NodeId>& group) {
  const Node first = graph.node(group[0]);
  const DType type = graph.value(first.in[kQW]).dtype;
  std::int64_t total = 0, k = 0, at = 0;
  std::vector<std::int64_t> widths;
  for (const NodeId id : group) {
    const Node& node = graph.node(id);
    const Dims& d = graph.value(node.in[kQW]).constant.dims();
    const bool trans = node.attr("trans_b", std::int64_t{0}) != 0;
    widths.push_back(trans ? d[0] : d[1]);
    k = trans ? d[1] : d[0];
    total += widths.back();
  }
  Tensor w = Tensor::allocate(type, {total, k}), scale = Tensor::allocate(DType::kF32, {total}),
         bias = Tensor::allocate(DType::kF32, {total});
  for (std::size_t g = 0; g < group.size(); ++g) {
    const Node& node = graph.node(group[g]);
    const auto* from = graph.value(node.in[kQW]).constant.as<std::byte>();
    const bool trans = node.attr("trans_b", std::int64_t{0}) != 0;
    const Tensor& scales = graph.value(node.in[kQWScale]).constant;
    const bool biased = node.in.size() > kQBias && node.in[kQBias] != ValueId::kNone;
    for (std::int64_t n = 0; n < widths[g]; ++n) {
      for (std::int64_t i = 0; i < k; ++i)
        w.mut<std::byte>()[(at + n) * k + i] = trans ? from[n * k + i] : from[i * widths[g] + n];
      scale.mut<float>()[at + n] = scales.as<float>()[scales.size() == 1 ? 0 : n];
      bias.mut<float>()[at + n] = biased ? graph.value(node.in[kQBias]).constant.as<float>()[n] : 0.0f;
    }
    at += widths[g];
  }
  Node packed = first;
  packed.attrs["trans_b"] = std::int64_t{1};
  packed.in.resize(kQBias + 1, ValueId::kNone);
  packed.in[kQW] = graph.add_constant(graph.value(first.in[kQW]).name + "_packed", std::move(w));
  packed.in[kQWScale] = graph.add_constant(first.name + "_scales", std::move(scale));
  packed.in[kQWZero] = ValueId::kNone;  // 0, or it would not be on tensor cores
  packed.in[kQBias] = graph.add_constant(first.name + "_biases", std::move(bias));
  put_packed(graph, group, widths, std::move(packed), total);
}

}  // namespace

void merge_products(Graph& graph) {
  std::map<std::pair<ValueId, ValueId>, std::vector<NodeId>> by_input;  // x, and the scale of its codes
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    if (is_packable(graph, node)) by_input[{node.in[0], ValueId::kNone}].push_back(id);
    if (is_packable_codes(graph, node)) by_input[{node.in[0], node.in[kQXScale]}].push_back(id);
  }
  for (const auto& [input, all] : by_input) {
    const bool codes = input.second != ValueId::kNone;
    std::vector<NodeId> group;
    for (const NodeId id : all) {
      const Node& node = graph.node(id);
      if ((codes || node.in.size() == graph.node(all[0]).in.size()) && !graph.is_output(node.out[0]))
        group.push_back(id);
    }
    if (group.size() < 2) continue;
    if (codes)
      pack_codes(graph, group);
    else
      pack(graph, group);
  }
}

// The largest of codes is the code of the largest: a quantizer that alone reads a pool's result moves in
// front of it, into the layer that makes the pool's input, and the pool reads and writes codes.
void quantize_before_pools(Graph& graph) {
  for (const NodeId id : graph.nodes()) {
    if (!graph.alive(id)) continue;
    const Node pool = graph.node(id);
    if (!pool.is("pare", "MaxPool") || graph.is_output(pool.out[0]) || pool.out.size() != 1) continue;
    const std::vector<Use> users = graph.users(pool.out[0]);
    std::vector<ProgramStep> steps;
    for (const Use& use : users) {
      ProgramStep step;
      std::string why;
      const Node& node = graph.node(use.node);
      if (use.slot == 0 && node.is("QuantizeLinear") && !graph.is_output(node.out[0]) &&
          step_of_node(graph, node, step, why))
        steps.push_back(step);
    }
    if (steps.empty() || steps.size() != users.size() ||
        std::any_of(steps.begin(), steps.end(), [&](const ProgramStep& s) {
          return s.x != steps[0].x || s.y != steps[0].y || s.z != steps[0].z || !(s.x > 0);
        }))
      continue;
    Node quantizer = graph.node(users[0].node);
    const Value& from = graph.value(pool.in[0]);
    Value codes = graph.value(quantizer.out[0]);
    codes.name = from.name + "_codes";
    codes.shape = from.shape;
    codes.layout = from.layout;
    codes.producer = NodeId::kNone;
    const DType type = codes.dtype;
    const ValueId before = graph.add_value(std::move(codes));
    quantizer.name += "_before_pool";
    quantizer.in[0] = pool.in[0];
    quantizer.out = {before};
    graph.insert_before(id, std::move(quantizer));
    graph.set_input(id, 0, before);
    graph.value(pool.out[0]).dtype = type;
    for (const Use& use : users) {
      graph.replace_uses(graph.node(use.node).out[0], pool.out[0]);
      graph.remove_node(use.node);
    }
  }
}

}  // namespace pare::planning
