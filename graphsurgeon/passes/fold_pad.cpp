#include <algorithm>
#include <optional>

#include "graphsurgeon/passes/passes.h"

namespace pare {
namespace {

// Begins and ends for all axes of a Pad with zeros, or nullopt.
std::optional<std::vector<std::int64_t>> zero_pads(const Graph& graph, const Node& pad, int rank) {
  if (!pad.is("Pad") || pad.attr("mode", "constant") != "constant") return std::nullopt;
  const auto given = constant_ints(graph, pad, 1);
  const ValueId value = input_of(pad, 2);
  if (!given) return std::nullopt;
  if (value != ValueId::kNone) {
    std::vector<double> fill;
    if (!graph.is_constant(value) || !to_doubles(graph.value(value).constant, fill) || fill.size() != 1 ||
        fill[0] != 0)
      return std::nullopt;
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
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(rank), 0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
    if (axis < 0 || axis >= rank) return std::nullopt;
    all[static_cast<std::size_t>(axis)] = (*given)[i];
    all[static_cast<std::size_t>(axis + rank)] = (*given)[i + axes.size()];
  }
  return all;
}

struct Match {
  ValueId x = ValueId::kNone;
  std::vector<std::int64_t> pads;  // of the Conv
};

bool match(const Graph& graph, NodeId id, Match& found) {
  const Node& conv = graph.node(id);
  if (!conv.is("Conv")) return false;
  const std::string auto_pad = conv.attr("auto_pad", "NOTSET");
  if (auto_pad != "NOTSET" && auto_pad != "VALID") return false;
  const NodeId producer = graph.producer(conv.in[0]);
  const int rank = graph.value(conv.in[1]).shape.rank();
  if (producer == NodeId::kNone || rank < 3) return false;
  const auto added = zero_pads(graph, graph.node(producer), rank);
  if (!added || std::any_of(added->begin(), added->end(), [](std::int64_t p) { return p < 0; })) return false;
  const auto spatial = static_cast<std::size_t>(rank) - 2, all = static_cast<std::size_t>(rank);
  if ((*added)[0] != 0 || (*added)[1] != 0 || (*added)[all] != 0 || (*added)[all + 1] != 0) return false;
  found.pads = conv.attr_ints("pads");
  if (found.pads.empty() || auto_pad == "VALID") found.pads.assign(2 * spatial, 0);
  if (found.pads.size() != 2 * spatial) return false;
  for (std::size_t i = 0; i < spatial; ++i) {
    found.pads[i] += (*added)[2 + i];
    found.pads[spatial + i] += (*added)[all + 2 + i];
  }
  found.x = graph.node(producer).in[0];
  return true;
}

int fold_pad(Graph& graph, PassContext&) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    Match found;
    if (!match(graph, id, found)) continue;
    graph.node(id).attrs.erase("auto_pad");
    graph.node(id).attrs["pads"] = found.pads;
    graph.set_input(id, 0, found.x);
    ++count;
  }
  return count;
}

}  // namespace

const Pass kFoldPad = {"fold_pad", "let a Conv pad for itself instead of a Pad with zeros before it",
                       fold_pad};

}  // namespace pare
