#include <algorithm>
#include <cmath>
#include <optional>

#include "graphsurgeon/passes/passes.h"

namespace pare {
namespace {

struct Padding {
  std::vector<std::int64_t> pads;  // begins, then ends, of all axes
  double fill = 0;
};

// What a Pad with constant mode adds, or nullopt.
std::optional<Padding> read_padding(const Graph& graph, const Node& pad, int rank) {
  if (!pad.is("Pad") || pad.attr("mode", "constant") != "constant") return std::nullopt;
  const auto given = constant_ints(graph, pad, 1);
  const ValueId value = input_of(pad, 2);
  if (!given) return std::nullopt;
  Padding padding;
  if (value != ValueId::kNone) {
    std::vector<double> fill;
    if (!graph.is_constant(value) || !to_doubles(graph.value(value).constant, fill) || fill.size() != 1)
      return std::nullopt;
    padding.fill = fill[0];
  }
  std::vector<std::int64_t> axes;
  if (input_of(pad, 3) != ValueId::kNone) {
    const auto listed = constant_ints(graph, pad, 3);
    if (!listed) return std::nullopt;
    axes = *listed;
  } else {
    for (int i = 0; i < rank; ++i) axes.push_back(i);
  }
  if (given->size() != 2 * axes.size()) return std::nullopt;
  std::vector<std::int64_t>& all = padding.pads;
  all.assign(2 * static_cast<std::size_t>(rank), 0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
    if (axis < 0 || axis >= rank) return std::nullopt;
    all[static_cast<std::size_t>(axis)] = (*given)[i];
    all[static_cast<std::size_t>(axis + rank)] = (*given)[i + axes.size()];
  }
  return padding;
}

// Every element is zero or above (or NaN), whatever the input.
bool is_never_negative(const Graph& graph, ValueId id) {
  const NodeId producer = graph.producer(id);
  if (producer == NodeId::kNone) return false;
  const Node& node = graph.node(producer);
  if (node.is("Relu") || node.is("Sigmoid") || node.is("Exp") || node.is("Abs")) return true;
  if (!node.is("Clip") || !graph.is_constant(input_of(node, 1))) return false;
  std::vector<double> low;
  return to_doubles(graph.value(node.in[1]).constant, low) && low.size() == 1 && low[0] >= 0;
}

// A pool's window counts what it pads itself: a maximum not at all, an average when it is told so.
bool pool_takes(const Graph& graph, const Node& pool, const Padding& padding, ValueId x) {
  if (pool.attr("ceil_mode", std::int64_t{0}) != 0) return false;
  if (pool.is("AveragePool")) {
    const std::vector<std::int64_t> own = pool.attr_ints("pads");
    const bool pads = std::any_of(own.begin(), own.end(), [](std::int64_t p) { return p != 0; });
    return padding.fill == 0 && (!pads || pool.attr("count_include_pad", std::int64_t{0}) != 0);
  }
  if (pool.out.size() > 1 && pool.out[1] != ValueId::kNone) return false;  // places count what was padded
  return padding.fill == -HUGE_VAL || (padding.fill <= 0 && is_never_negative(graph, x));
}

struct Match {
  ValueId x = ValueId::kNone;
  std::vector<std::int64_t> pads;  // of the Conv
};

bool match(const Graph& graph, NodeId id, Match& found) {
  const Node& node = graph.node(id);
  const bool is_conv = node.is("Conv");
  if (!is_conv && !node.is("AveragePool") && !node.is("MaxPool")) return false;
  const std::string auto_pad = node.attr("auto_pad", "NOTSET");
  if (auto_pad != "NOTSET" && auto_pad != "VALID") return false;
  const NodeId producer = graph.producer(node.in[0]);
  std::vector<std::int64_t> window = node.attr_ints("kernel_shape");
  const int rank = is_conv ? graph.value(node.in[1]).shape.rank() : static_cast<int>(window.size()) + 2;
  if (producer == NodeId::kNone || rank < 3) return false;
  const auto added = read_padding(graph, graph.node(producer), rank);
  if (!added) return false;
  const std::vector<std::int64_t>& extra = added->pads;
  if (std::any_of(extra.begin(), extra.end(), [](std::int64_t p) { return p < 0; })) return false;
  found.x = graph.node(producer).in[0];
  if (is_conv ? added->fill != 0 : !pool_takes(graph, node, *added, found.x)) return false;
  const auto spatial = static_cast<std::size_t>(rank) - 2, all = static_cast<std::size_t>(rank);
  if (extra[0] != 0 || extra[1] != 0 || extra[all] != 0 || extra[all + 1] != 0) return false;
  found.pads = node.attr_ints("pads");
  if (found.pads.empty() || auto_pad == "VALID") found.pads.assign(2 * spatial, 0);
  if (found.pads.size() != 2 * spatial) return false;
  for (std::size_t i = 0; i < spatial; ++i) {
    found.pads[i] += extra[2 + i];
    found.pads[spatial + i] += extra[all + 2 + i];
    // A pool must not have a window of nothing but padding; runtimes refuse pads as wide as the window.
    if (!is_conv && std::max(found.pads[i], found.pads[spatial + i]) >= window[i]) return false;
  }
  return true;
}

int fold_pad(Graph& graph, PassContext& context) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    Match found;
    if (!match(graph, id, found)) continue;
    if (!context.may_change(graph, id)) break;
    graph.node(id).attrs.erase("auto_pad");
    graph.node(id).attrs["pads"] = found.pads;
    if (graph.node(id).is("AveragePool")) graph.node(id).attrs["count_include_pad"] = std::int64_t{1};
    graph.set_input(id, 0, found.x);
    ++count;
  }
  return count;
}

}  // namespace

const Pass kFoldPad = {"fold_pad", "let a Conv or a pool pad for itself instead of a Pad before it",
                       fold_pad};

}  // namespace pare
