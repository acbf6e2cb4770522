#include "quant/transform/channel_shift.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "quant/grid/linear_weight.h"

namespace pare::quant {
namespace {

ValueId input(const Node& node, int slot) {
  const auto i = static_cast<std::size_t>(slot);
  return i < node.in.size() ? node.in[i] : ValueId::kNone;
}

bool is_row(const Graph& graph, ValueId id, std::int64_t size) {
  return graph.is_constant(id) && graph.value(id).dtype == DType::kF32 &&
         graph.value(id).constant.dims() == Dims{size};
}

// Where a row is added behind a node: its own bias (which may be missing), or the Add behind a MatMul.
bool bias_place(const Graph& graph, NodeId id, std::int64_t size, NodeId& holder, int& slot) {
  const Node& node = graph.node(id);
  holder = id;
  slot = 2;
  if (node.is("MatMul")) {
    holder = graph.only_user(node.out[0]);
    if (holder == NodeId::kNone || !graph.node(holder).is("Add")) return false;
    slot = graph.node(holder).in[0] == node.out[0] ? 1 : 0;
    return is_row(graph, graph.node(holder).in[static_cast<std::size_t>(slot)], size);
  }
  if (node.is("Gemm") && (node.attr("alpha", 1.0f) != 1.0f || node.attr("beta", 1.0f) != 1.0f)) return false;
  if (!node.is("Gemm") && !node.is("Conv") && !node.is("LayerNormalization")) return false;
  return input(node, 2) == ValueId::kNone || is_row(graph, node.in[2], size);
}

bool pads(const Node& node) {
  const std::vector<std::int64_t> list = node.attr_ints("pads");
  return node.attr("auto_pad", "NOTSET") != "NOTSET" ||
         std::any_of(list.begin(), list.end(), [](std::int64_t p) { return p != 0; });
}

// The maker of x: the node whose output is x, or a row's Add.
bool find_maker(const Graph& graph, ShiftGroup& group) {
  const NodeId id = graph.producer(group.value);
  if (id == NodeId::kNone || graph.is_output(group.value)) return false;
  const Node& node = graph.node(id);
  const int last = graph.value(group.value).shape.rank() - 1;
  group.maker = id;
  if (node.is("Add")) {
    for (const int slot : {0, 1})
      if (group.channel_axis == last &&
          is_row(graph, node.in[static_cast<std::size_t>(slot)], group.channels)) {
        group.slot = slot;
        return true;
      }
    return false;
  }
  if (node.is("LayerNormalization") &&
      (group.channel_axis != last || node.out.size() > 1 ||
       (node.attr("axis", std::int64_t{-1}) != -1 && node.attr("axis", std::int64_t{-1}) != last)))
    return false;
  if (node.is("MatMul")) return false;  // it would need an Add of its own
  if (node.is("Conv") && group.channel_axis != 1) return false;
  NodeId holder = NodeId::kNone;
  return bias_place(graph, id, group.channels, holder, group.slot);
}

void find_in(const Graph& graph, const SubgraphPath& path, std::vector<ShiftGroup>& groups) {
  std::vector<bool> seen(graph.value_count(), false);
  for (const NodeId id : graph.nodes()) {
    WeightView view;
    if (!view_weight(graph, graph.node(id), view)) continue;
    const ValueId x = graph.node(id).in[0];
    if (x == ValueId::kNone || seen[static_cast<std::size_t>(x)]) continue;
    seen[static_cast<std::size_t>(x)] = true;
    ShiftGroup group;
    group.path = path;
    group.value = x;
    group.channels = view.ins * view.groups;
    group.channel_axis = graph.node(id).is("Conv") ? 1 : graph.value(x).shape.rank() - 1;
    bool all = group.channel_axis >= 1;
    for (const Use& use : graph.users(x)) {
      const Node& node = graph.node(use.node);
      WeightView other;
      NodeId holder = NodeId::kNone;
      int slot = 0;
      all = all && use.slot == 0 && view_weight(graph, node, other) &&
            other.ins * other.groups == group.channels && node.is("Conv") == graph.node(id).is("Conv") &&
            !(node.is("Conv") && pads(node)) && bias_place(graph, use.node, other.outs, holder, slot);
      if (all) group.consumers.push_back(use.node);
    }
    if (all && find_maker(graph, group)) groups.push_back(std::move(group));
  }
}

// row += factor * d
void add_to_bias(Graph& graph, NodeId id, int slot, const std::vector<double>& d, double factor) {
  const ValueId old = input(graph.node(id), slot);
  std::vector<float> row(d.size(), 0.0f);
  if (old != ValueId::kNone) std::copy_n(graph.value(old).constant.as<float>(), d.size(), row.data());
  for (std::size_t i = 0; i < d.size(); ++i)
    row[i] = static_cast<float>(static_cast<double>(row[i]) + factor * d[i]);
  const std::string name = graph.value(graph.node(id).out[0]).name + "_bias_shifted";
  graph.set_input(
      id, slot,
      graph.add_constant(name, Tensor::from(DType::kF32, {static_cast<std::int64_t>(d.size())}, row)));
}

template <class Visit>
void for_weights(const Graph& graph, NodeId id, Visit&& visit) {
  WeightView view;
  if (!view_weight(graph, graph.node(id), view)) return;
  const float* w = graph.value(graph.node(id).in[1]).constant.as<float>();
  for (std::int64_t o = 0; o < view.outs; ++o)
    for (std::int64_t i = 0; i < view.ins; ++i)
      for (std::int64_t t = 0; t < view.taps; ++t)
        visit(static_cast<std::size_t>(o), static_cast<std::size_t>(view.channel(o, i)),
              static_cast<double>(w[view.at(o, i, t)]));
}

}  // namespace

std::vector<ShiftGroup> find_shift_groups(const Graph& whole) {
  std::vector<ShiftGroup> groups;
  walk_graphs(whole, [&](const SubgraphPath& path, const Graph& graph) { find_in(graph, path, groups); });
  return groups;
}

ShiftChoice choose_shift(const Graph& whole, const ShiftGroup& group, const std::vector<float>& sample,
                         const ActivationRounding& round) {
  const Graph& graph = subgraph_at(whole, group.path);
  const auto channels = static_cast<std::size_t>(group.channels);
  ShiftChoice choice;
  if (round == nullptr || sample.size() < channels) return choice;
  std::vector<double> squares(channels, 0.0);
  for (const NodeId id : group.consumers)
    for_weights(graph, id, [&](std::size_t, std::size_t c, double w) { squares[c] += w * w; });
  std::vector<float> low(sample.begin(), sample.begin() + static_cast<std::ptrdiff_t>(channels)), high = low;
  for (std::size_t i = 0; i < sample.size(); ++i) {
    low[i % channels] = std::min(low[i % channels], sample[i]);
    high[i % channels] = std::max(high[i % channels], sample[i]);
  }
  const auto loss = [&](const std::vector<float>& z) {
    std::vector<float> x = sample;
    double largest = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] -= z[i % channels];
      largest = std::max(largest, std::fabs(static_cast<double>(x[i])));
    }
    std::vector<float> image = x;
    round(image.data(), static_cast<std::int64_t>(x.size() / channels), group.channels, largest);
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double e = static_cast<double>(image[i]) - static_cast<double>(x[i]);
      sum += e * e * squares[i % channels];
    }
    return sum;
  };
  std::vector<float> z(channels);
  for (std::size_t c = 0; c < channels; ++c) z[c] = (low[c] + high[c]) / 2;
  const double before = loss(std::vector<float>(channels, 0.0f)), after = loss(z);
  if (!(after < before) || !(after > 0)) return choice;
  choice.z = std::move(z);
  choice.gain_db = 10 * std::log10(before / after);
  return choice;
}

void apply_shift(Graph& whole, const ShiftGroup& group, const std::vector<float>& z) {
  PARE_ASSERT(z.size() == static_cast<std::size_t>(group.channels));
  Graph& graph = own_subgraph_at(whole, group.path);
  for (const NodeId id : group.consumers) {
    WeightView view;
    const bool linear = view_weight(graph, graph.node(id), view);
    PARE_ASSERT(linear);
    std::vector<double> d(static_cast<std::size_t>(view.outs), 0.0);
    for_weights(graph, id,
                [&](std::size_t o, std::size_t c, double w) { d[o] += w * static_cast<double>(z[c]); });
    NodeId holder = NodeId::kNone;
    int slot = 0;
    const bool placed = bias_place(graph, id, view.outs, holder, slot);
    PARE_ASSERT(placed);
    add_to_bias(graph, holder, slot, d, 1);
  }
  add_to_bias(graph, group.maker, group.slot, {z.begin(), z.end()}, -1);
}

}  // namespace pare::quant
