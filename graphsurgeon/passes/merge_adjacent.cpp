#include <algorithm>
#include <set>

#include "graphsurgeon/passes/passes.h"

namespace pare {
namespace {

using Ints = std::vector<std::int64_t>;

// --- Transpose

bool merge_transposes(Graph& graph, NodeId id, const Node& before, PassContext& context) {
  const Node& node = graph.node(id);
  if (!node.is("Transpose") || !before.is("Transpose")) return false;
  const Ints first = before.attr_ints("perm"), second = node.attr_ints("perm");
  if (first.empty() || first.size() != second.size()) return false;
  Ints both(second.size());
  for (std::size_t i = 0; i < second.size(); ++i) {
    if (second[i] < 0 || static_cast<std::size_t>(second[i]) >= first.size()) return false;
    both[i] = first[static_cast<std::size_t>(second[i])];
  }
  if (!context.may_change(graph, id)) return false;
  const ValueId x = before.in[0];
  graph.node(id).attrs["perm"] = both;
  graph.set_input(id, 0, x);
  return true;
}

// --- Reshape, Flatten, Squeeze, Unsqueeze

bool only_renames_axes(const Node& node) {
  return node.is("Reshape") || node.is("Flatten") || node.is("Squeeze") || node.is("Unsqueeze");
}

// Whatever the first one made of the elements, a Reshape to a constant target that copies no size undoes it.
bool merge_reshapes(Graph& graph, NodeId id, const Node& before, PassContext& context) {
  const Node& node = graph.node(id);
  if (!node.is("Reshape") || !only_renames_axes(before)) return false;
  const auto target = constant_ints(graph, node, 1);
  if (!target) return false;
  const Shape& middle = graph.value(node.in[0]).shape;
  const Shape& start = graph.value(before.in[0]).shape;
  const bool copies = node.attr("allowzero", std::int64_t{0}) == 0;
  for (std::size_t i = 0; copies && i < target->size(); ++i) {
    if ((*target)[i] != 0) continue;
    if (!middle.ranked || !start.ranked || i >= middle.dims.size() || i >= start.dims.size()) return false;
    if (!middle.dims[i].same(start.dims[i])) return false;
  }
  if (!context.may_change(graph, id)) return false;
  graph.set_input(id, 0, before.in[0]);
  return true;
}

// Axes in [0, rank), sorted; false when they are computed or wrong.
bool read_axes(const Graph& graph, const Node& node, int rank, Ints& axes) {
  const auto given = constant_ints(graph, node, 1);
  if (!given || rank < 0) return false;
  std::set<std::int64_t> sorted;
  for (const std::int64_t axis : *given) sorted.insert(axis < 0 ? axis + rank : axis);
  if (sorted.size() != given->size()) return false;
  axes.assign(sorted.begin(), sorted.end());
  return axes.empty() || (axes.front() >= 0 && axes.back() < rank);
}

// Squeeze(Squeeze(x, a), b): b counts what a left over.
bool squeeze_twice(const Graph& graph, const Node& node, const Node& before, Ints& axes) {
  const int rank = graph.value(before.in[0]).shape.rank();
  Ints first, second;
  if (!read_axes(graph, before, rank, first)) return false;
  if (!read_axes(graph, node, rank - static_cast<int>(first.size()), second)) return false;
  Ints left;
  for (int i = 0; i < rank; ++i)
    if (!std::binary_search(first.begin(), first.end(), i)) left.push_back(i);
  axes = first;
  for (const std::int64_t axis : second) axes.push_back(left[static_cast<std::size_t>(axis)]);
  std::sort(axes.begin(), axes.end());
  return true;
}

// Unsqueeze(Unsqueeze(x, a), b): b counts in the final shape, a in the one before.
bool unsqueeze_twice(const Graph& graph, const Node& node, const Node& before, Ints& axes) {
  const int rank = graph.value(before.in[0]).shape.rank();
  const auto a = constant_ints(graph, before, 1), b = constant_ints(graph, node, 1);
  if (!a || !b || rank < 0) return false;
  const int middle = rank + static_cast<int>(a->size()), last = middle + static_cast<int>(b->size());
  Ints first, second;
  if (!read_axes(graph, before, middle, first) || !read_axes(graph, node, last, second)) return false;
  Ints places;  // where the axes of the middle shape end up
  for (int i = 0; i < last; ++i)
    if (!std::binary_search(second.begin(), second.end(), i)) places.push_back(i);
  axes = second;
  for (const std::int64_t axis : first) axes.push_back(places[static_cast<std::size_t>(axis)]);
  std::sort(axes.begin(), axes.end());
  return true;
}

bool merge_squeezes(Graph& graph, NodeId id, const Node& before, PassContext& context) {
  const Node& node = graph.node(id);
  Ints axes;
  const bool twice =
      (node.is("Squeeze") && before.is("Squeeze") && squeeze_twice(graph, node, before, axes)) ||
      (node.is("Unsqueeze") && before.is("Unsqueeze") && unsqueeze_twice(graph, node, before, axes));
  if (!twice || !context.may_change(graph, id)) return false;
  const ValueId x = before.in[0];
  graph.set_input(id, 1, graph.add_constant(graph.value(node.out[0]).name + "_axes", Tensor::ints(axes)));
  graph.set_input(id, 0, x);
  return true;
}

// Squeeze(Unsqueeze(x)) and the reverse that end at x's shape.
bool undo_squeeze(Graph& graph, NodeId id, const Node& before, PassContext& context) {
  const Node& node = graph.node(id);
  const bool pair =
      (node.is("Squeeze") && before.is("Unsqueeze")) || (node.is("Unsqueeze") && before.is("Squeeze"));
  if (!pair || !same_shape(graph.value(before.in[0]).shape, graph.value(node.out[0]).shape)) return false;
  if (!can_bypass(graph, id, before.in[0]) || !context.may_change(graph, id)) return false;
  return bypass(graph, id, before.in[0]);
}

// --- Cast

int exact_integer_bits(DType type) {  // integers of so many bits, sign left out, survive a Cast to `type`
  switch (type) {
    case DType::kF64:
      return 53;
    case DType::kF32:
      return 24;
    case DType::kF16:
      return 11;
    case DType::kBF16:
      return 8;
    default:
      return 0;
  }
}

bool is_signed_integer(DType type) {
  return type == DType::kI8 || type == DType::kI16 || type == DType::kI32 || type == DType::kI64;
}

// Every value of `from` is one of `to`.
bool loses_nothing(DType from, DType to) {
  if (from == to) return true;
  if (from == DType::kF16 || from == DType::kBF16) return to == DType::kF32 || to == DType::kF64;
  if (from == DType::kF32) return to == DType::kF64;
  const bool plain = is_integer(from) && bits(from) >= 8;
  if (!plain)
    return from == DType::kBool && (exact_integer_bits(to) > 0 || (is_integer(to) && bits(to) >= 8));
  const int own = bits(from) - (is_signed_integer(from) ? 1 : 0);
  if (exact_integer_bits(to) > 0) return own <= exact_integer_bits(to);
  if (!is_integer(to) || bits(to) < 8 || (is_signed_integer(from) && !is_signed_integer(to))) return false;
  return own <= bits(to) - (is_signed_integer(to) ? 1 : 0);
}

bool merge_casts(Graph& graph, NodeId id, const Node& before, PassContext& context) {
  if (!graph.node(id).is("Cast") || !before.is("Cast")) return false;
  if (!loses_nothing(graph.value(before.in[0]).dtype, graph.value(before.out[0]).dtype)) return false;
  if (!context.may_change(graph, id)) return false;
  graph.set_input(id, 0, before.in[0]);
  return true;
}

int merge_adjacent(Graph& graph, PassContext& context) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    if (!node.domain.empty() || node.in.empty() || node.in[0] == ValueId::kNone || node.out.size() != 1)
      continue;
    const NodeId producer = graph.producer(node.in[0]);
    if (producer == NodeId::kNone) continue;
    const Node& before = graph.node(producer);
    if (before.in.empty() || before.in[0] == ValueId::kNone) continue;
    const bool merged = merge_transposes(graph, id, before, context) ||
                        merge_reshapes(graph, id, before, context) ||
                        merge_squeezes(graph, id, before, context) ||
                        undo_squeeze(graph, id, before, context) || merge_casts(graph, id, before, context);
    count += merged;
  }
  return count;
}

}  // namespace

const Pass kMergeAdjacent = {"merge_adjacent",
                             "make one of two Transposes, Reshapes, Squeezes, Unsqueezes or Casts in a row",
                             merge_adjacent};

}  // namespace pare
