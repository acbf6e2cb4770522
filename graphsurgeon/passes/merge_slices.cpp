#include <algorithm>
#include <map>
#include <optional>

#include "graphsurgeon/passes/passes.h"

namespace pare {
namespace {

struct Cut {  // one axis of a Slice, as written
  std::int64_t start = 0, end = 0, step = 1;
};
using Cuts = std::map<std::int64_t, Cut>;  // by axis, counted from 0

std::optional<Cuts> read_cuts(const Graph& graph, const Node& node) {
  const int rank = graph.value(node.in[0]).shape.rank();
  const auto starts = constant_ints(graph, node, 1), ends = constant_ints(graph, node, 2);
  if (!starts || !ends || starts->size() != ends->size()) return std::nullopt;
  std::vector<std::int64_t> axes, steps(starts->size(), 1);
  if (input_of(node, 3) != ValueId::kNone) {
    const auto given = constant_ints(graph, node, 3);
    if (!given) return std::nullopt;
    axes = *given;
  } else {
    for (std::size_t i = 0; i < starts->size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  }
  if (input_of(node, 4) != ValueId::kNone) {
    const auto given = constant_ints(graph, node, 4);
    if (!given) return std::nullopt;
    steps = *given;
  }
  if (axes.size() != starts->size() || steps.size() != starts->size()) return std::nullopt;
  Cuts cuts;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] < 0 && rank < 0) return std::nullopt;
    const std::int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
    if (axis < 0 || (rank >= 0 && axis >= rank)) return std::nullopt;
    if (!cuts.emplace(axis, Cut{(*starts)[i], (*ends)[i], steps[i]}).second) return std::nullopt;
  }
  return cuts;
}

// x[a][b] as one cut, whatever the size of the axis: both from the front, forwards, so that element i of the
// second stands at a.start + (b.start + i * b.step) * a.step, before a.end.
std::optional<Cut> compose(const Cut& a, const Cut& b) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 40;  // sums and products below stay in range
  const auto plain = [](const Cut& c) {
    return c.start >= 0 && c.start < kLarge && c.end >= 0 && c.step > 0;
  };
  if (!plain(a) || !plain(b) || a.step > (1 << 20) || b.step > (1 << 20)) return std::nullopt;
  Cut cut;
  cut.start = a.start + b.start * a.step;
  cut.step = a.step * b.step;
  cut.end = b.end < kLarge ? std::min(a.end, a.start + b.end * a.step) : a.end;
  return cut;
}

bool match(const Graph& graph, NodeId id, Cuts& all) {
  const Node& node = graph.node(id);
  if (!node.is("Slice") || node.in[0] == ValueId::kNone) return false;
  const NodeId producer = graph.producer(node.in[0]);
  if (producer == NodeId::kNone || !graph.node(producer).is("Slice")) return false;
  const auto first = read_cuts(graph, graph.node(producer)), second = read_cuts(graph, node);
  if (!first || !second) return false;
  all = *first;
  for (const auto& [axis, cut] : *second) {
    const auto [place, is_new] = all.emplace(axis, cut);
    if (is_new) continue;
    const auto both = compose(place->second, cut);
    if (!both) return false;
    place->second = *both;
  }
  return true;
}

int merge_slices(Graph& graph, PassContext& context) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    Cuts cuts;
    if (!match(graph, id, cuts)) continue;
    if (!context.may_change(graph, id)) break;
    std::vector<std::int64_t> starts, ends, axes, steps;
    for (const auto& [axis, cut] : cuts) {
      axes.push_back(axis);
      starts.push_back(cut.start);
      ends.push_back(cut.end);
      steps.push_back(cut.step);
    }
    const std::string name = graph.value(graph.node(id).out[0]).name;
    const auto give = [&](int slot, const char* what, const std::vector<std::int64_t>& values) {
      graph.set_input(id, slot, graph.add_constant(name + what, Tensor::ints(values)));
    };
    give(1, "_starts", starts);
    give(2, "_ends", ends);
    give(3, "_axes", axes);
    const bool plain = std::all_of(steps.begin(), steps.end(), [](std::int64_t s) { return s == 1; });
    if (!plain || input_of(graph.node(id), 4) != ValueId::kNone) give(4, "_steps", steps);
    graph.set_input(id, 0, graph.node(graph.producer(graph.node(id).in[0])).in[0]);
    ++count;
  }
  return count;
}

int merge_concats(Graph& graph, PassContext& context) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    if (!graph.node(id).is("Concat")) continue;
    const int rank = graph.value(graph.node(id).out[0]).shape.rank();
    const auto axis_of = [&](const Node& node) {
      const std::int64_t axis = node.attr("axis", std::int64_t{0});
      return axis < 0 && rank > 0 ? axis + rank : axis;
    };
    Node longer = graph.node(id);
    longer.in.clear();
    bool found = false;
    for (const ValueId in : graph.node(id).in) {
      const NodeId producer = graph.producer(in);
      const bool merge = producer != NodeId::kNone && graph.only_user(in) == id &&
                         graph.node(producer).is("Concat") &&
                         axis_of(graph.node(producer)) == axis_of(longer) && axis_of(longer) >= 0;
      if (!merge)
        longer.in.push_back(in);
      else
        longer.in.insert(longer.in.end(), graph.node(producer).in.begin(), graph.node(producer).in.end());
      found = found || merge;
    }
    if (!found) continue;
    if (!context.may_change(graph, id)) break;
    for (std::size_t i = 0; i < longer.in.size(); ++i) graph.set_input(id, static_cast<int>(i), longer.in[i]);
    ++count;
  }
  return count;
}

}  // namespace

const Pass kMergeSlices = {"merge_slices", "make one of two Slices in a row", merge_slices};
const Pass kMergeConcats = {"merge_concats", "make one of Concats in a row along one axis", merge_concats};

}  // namespace pare
