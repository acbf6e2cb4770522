#include <algorithm>
#include <cmath>

#include "graphsurgeon/passes/passes.h"

namespace pare {
namespace {

bool all_equal(const std::vector<std::int64_t>& values, std::int64_t wanted) {
  return std::all_of(values.begin(), values.end(), [&](std::int64_t v) { return v == wanted; });
}

bool one_input(const Node& node) {
  return node.in.size() == 1 &&
         (node.is("Concat") || node.is("Sum") || node.is("Max") || node.is("Min") || node.is("Mean"));
}

bool full_slice(const Graph& graph, const Node& node) {
  const auto starts = constant_ints(graph, node, 1);
  if (!node.is("Slice") || !starts || !all_equal(*starts, 0)) return false;
  if (input_of(node, 4) == ValueId::kNone) return true;
  const auto steps = constant_ints(graph, node, 4);
  return steps && all_equal(*steps, 1);
}

bool unmoved_transpose(const Graph& graph, const Node& node) {
  if (!node.is("Transpose")) return false;
  std::vector<std::int64_t> perm = node.attr_ints("perm");
  if (perm.empty())
    return graph.value(node.in[0]).shape.rank() == 1 || graph.value(node.in[0]).shape.rank() == 0;
  return std::is_sorted(perm.begin(), perm.end());
}

bool zero_pad(const Graph& graph, const Node& node) {
  const auto pads = constant_ints(graph, node, 1);
  return node.is("Pad") && pads && all_equal(*pads, 0);
}

bool inference_dropout(const Graph& graph, const Node& node) {
  if (!node.is("Dropout")) return false;
  if (node.out.size() > 1 && node.out[1] != ValueId::kNone) return false;  // someone reads the mask
  const ValueId training = input_of(node, 2);
  if (training == ValueId::kNone) return true;
  return graph.is_constant(training) && graph.value(training).constant.size() == 1 &&
         graph.value(training).constant.to_ints()[0] == 0;
}

bool every_element_is(const Graph& graph, ValueId id, double wanted) {
  if (!graph.is_constant(id) || graph.value(id).constant.size() > 4096) return false;
  std::vector<double> values;
  if (!to_doubles(graph.value(id).constant, values)) return false;
  return std::all_of(values.begin(), values.end(), [&](double v) { return v == wanted && !std::signbit(v); });
}

// Arithmetic with a neutral constant: the slot of the other operand, or -1. x + 0 is not among it: it turns
// -0 into +0.
int neutral(const Graph& graph, const Node& node) {
  if (node.in.size() != 2) return -1;
  const auto right = [&](double v) { return every_element_is(graph, node.in[1], v); };
  if (node.is("Mul") && every_element_is(graph, node.in[0], 1)) return 1;
  if ((node.is("Mul") || node.is("Div") || node.is("Pow")) && right(1)) return 0;
  return node.is("Sub") && right(0) ? 0 : -1;
}

// Operators that only move or name elements: the same shape means the same tensor.
bool only_reshapes(const Node& node) {
  return node.is("Reshape") || node.is("Flatten") || node.is("Expand") || node.is("Squeeze") ||
         node.is("Unsqueeze") || (node.is("Split") && node.out.size() == 1) || node.is("Tile");
}

// The value that the node's output equals, or kNone.
ValueId match(const Graph& graph, const Node& node) {
  if (node.out.empty() || node.out[0] == ValueId::kNone || node.in.empty() || node.in[0] == ValueId::kNone)
    return ValueId::kNone;
  const Value& out = graph.value(node.out[0]);
  const auto unchanged = [&](std::size_t slot) {
    const Value& in = graph.value(node.in[slot]);
    return in.dtype == out.dtype && in.dtype != DType::kUndefined && same_shape(in.shape, out.shape);
  };
  if (node.is("Identity") || inference_dropout(graph, node) || one_input(node)) return node.in[0];
  if (node.is("Cast") || node.is("CastLike"))
    return graph.value(node.in[0]).dtype == out.dtype && out.dtype != DType::kUndefined ? node.in[0]
                                                                                        : ValueId::kNone;
  if (unmoved_transpose(graph, node) || zero_pad(graph, node)) return node.in[0];
  if (only_reshapes(node) && unchanged(0)) return node.in[0];
  if (full_slice(graph, node) && unchanged(0)) return node.in[0];
  const int kept = neutral(graph, node);
  return kept >= 0 && unchanged(static_cast<std::size_t>(kept)) ? node.in[static_cast<std::size_t>(kept)]
                                                                : ValueId::kNone;
}

int remove_identity(Graph& graph, PassContext& context) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    const ValueId same = match(graph, graph.node(id));
    if (same != ValueId::kNone && can_bypass(graph, id, same)) {
      if (!context.may_change(graph, id)) break;
      bypass(graph, id, same);
      ++count;
    }
  }
  return count;
}

}  // namespace

const Pass kRemoveIdentity = {"remove_identity", "take out nodes that give their input unchanged",
                              remove_identity};

}  // namespace pare
