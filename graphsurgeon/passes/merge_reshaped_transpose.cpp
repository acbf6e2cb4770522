#include <utility>

#include "graphsurgeon/passes/passes.h"

namespace pare {
namespace {

// Shapes of x, of the three-dimensional value, and of the result say: [.., m, n] became [.., n, m].
bool swaps_last_two(const Shape& x, const Shape& middle, const Shape& result) {
  const int rank = x.rank();
  if (rank < 3 || result.rank() != rank || middle.rank() != 3) return false;
  const auto at = [](const Shape& shape, int i) -> const Dim& {
    return shape.dims[static_cast<std::size_t>(i)];
  };
  for (int i = 0; i + 2 < rank; ++i)
    if (!at(x, i).same(at(result, i))) return false;
  const Dim &m = at(x, rank - 2), &n = at(x, rank - 1);
  return m.same(at(middle, 1)) && n.same(at(middle, 2)) && n.same(at(result, rank - 2)) &&
         m.same(at(result, rank - 1));
}

// x of Reshape(Transpose(Reshape(x, [-1, m, n]), [0, 2, 1]), [.., n, m]); kNone otherwise.
ValueId match(const Graph& graph, const Node& last) {
  if (!last.is("Reshape")) return ValueId::kNone;
  const NodeId middle = graph.producer(last.in[0]);
  if (middle == NodeId::kNone || !graph.node(middle).is("Transpose")) return ValueId::kNone;
  const Node& transpose = graph.node(middle);
  if (transpose.attr_ints("perm") != std::vector<std::int64_t>{0, 2, 1}) return ValueId::kNone;
  const NodeId first = graph.producer(transpose.in[0]);
  if (first == NodeId::kNone || !graph.node(first).is("Reshape")) return ValueId::kNone;
  const ValueId x = graph.node(first).in[0];
  const bool swaps = swaps_last_two(graph.value(x).shape, graph.value(transpose.in[0]).shape,
                                    graph.value(last.out[0]).shape);
  return swaps ? x : ValueId::kNone;
}

int merge_reshaped_transpose(Graph& graph, PassContext& context) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    const ValueId x = match(graph, graph.node(id));
    if (x == ValueId::kNone) continue;
    if (!context.may_change(graph, id)) break;
    Node transpose;
    transpose.op = "Transpose";
    transpose.name = graph.node(id).name;
    transpose.in = {x};
    std::vector<std::int64_t> perm;
    for (int i = 0; i < graph.value(x).shape.rank(); ++i) perm.push_back(i);
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    transpose.attrs["perm"] = perm;
    const ValueId result = graph.node(id).out[0];
    graph.set_output(id, 0, ValueId::kNone);
    transpose.out = {result};
    graph.insert_after(id, std::move(transpose));
    graph.remove_node(id);
    ++count;
  }
  return count;
}

}  // namespace

const Pass kMergeReshapedTranspose = {"merge_reshaped_transpose",
                                      "make one Transpose of a Transpose of matrices between two Reshapes",
                                      merge_reshaped_transpose};

}  // namespace pare
