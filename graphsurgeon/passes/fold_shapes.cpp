#include <utility>

#include "engine/ir/schema.h"
#include "graphsurgeon/passes/passes.h"

namespace pare {
namespace {

// The elements of an integer tensor of the value's type.
Tensor ints_tensor(DType type, const Dims& dims, const std::vector<SymInt>& elements) {
  std::vector<std::int64_t> values;
  for (const SymInt& e : elements) values.push_back(e.value);
  if (type == DType::kI64) return Tensor::from(type, dims, values);
  const std::vector<std::int32_t> narrow(values.begin(), values.end());
  return Tensor::from(type, dims, narrow);
}

// An int64 or int32 tensor all of whose elements are known already.
bool match_known(const Graph& graph, const KnownInts& known, const Node& node) {
  if (node.out.size() != 1 || node.out[0] == ValueId::kNone) return false;
  const Value& value = graph.value(node.out[0]);
  const auto& elements = known[static_cast<std::size_t>(node.out[0])];
  if (!elements || !value.shape.concrete() || value.shape.rank() > 1) return false;
  if (value.dtype != DType::kI64 && value.dtype != DType::kI32) return false;
  if (element_count(value.shape.sizes()) != static_cast<std::int64_t>(elements->size())) return false;
  for (const SymInt& e : *elements)
    if (!e.known) return false;
  return true;
}

const std::vector<SymInt>* target_of(const Graph& graph, const KnownInts& known, const Node& node) {
  const ValueId id = input_of(node, 1);
  if (id == ValueId::kNone || graph.is_constant(id)) return nullptr;
  const auto& elements = known[static_cast<std::size_t>(id)];
  return elements ? &*elements : nullptr;
}

// The target as numbers, with 0 for a size that is copied and -1 for at most one that follows from the rest.
bool match_reshape(const Graph& graph, const KnownInts& known, const Node& node,
                   std::vector<std::int64_t>& target) {
  if (!node.is("Reshape")) return false;
  const auto* elements = target_of(graph, known, node);
  if (elements == nullptr) return false;
  const Shape& in = graph.value(node.in[0]).shape;
  const Shape& out = graph.value(node.out[0]).shape;
  const bool may_copy = node.attr("allowzero", std::int64_t{0}) == 0;
  int open = 0;
  for (std::size_t i = 0; i < elements->size(); ++i) {
    const SymInt& e = (*elements)[i];
    const bool has_in = in.ranked && i < in.dims.size();
    if (e.known) {
      target.push_back(e.value);
      open += e.value == -1;
    } else if (out.ranked && i < out.dims.size() && out.dims[i].known() && out.dims[i].value > 0) {
      target.push_back(out.dims[i].value);
    } else if (may_copy && has_in && !e.symbol.empty() && e.symbol == in.dims[i].symbol) {
      target.push_back(0);
    } else {
      target.push_back(-1);
      ++open;
    }
  }
  return open <= 1;
}

// 1 for a size that the input has already.
bool match_expand(const Graph& graph, const KnownInts& known, const Node& node,
                  std::vector<std::int64_t>& target) {
  if (!node.is("Expand")) return false;
  const auto* elements = target_of(graph, known, node);
  const Shape& in = graph.value(node.in[0]).shape;
  if (elements == nullptr || !in.ranked) return false;
  for (std::size_t i = 0; i < elements->size(); ++i) {
    const SymInt& e = (*elements)[i];
    const std::size_t behind = elements->size() - i;
    if (e.known) {
      target.push_back(e.value);
      continue;
    }
    if (behind > in.dims.size()) return false;
    if (e.symbol.empty() || e.symbol != in.dims[in.dims.size() - behind].symbol) return false;
    target.push_back(1);
  }
  return true;
}

void rewrite_target(Graph& graph, NodeId id, const std::vector<std::int64_t>& target) {
  const std::string name = graph.value(graph.node(id).out[0]).name + "_shape";
  graph.set_input(id, 1, graph.add_constant(name, Tensor::ints(target)));
}

int fold_shapes(Graph& graph, PassContext& context) {
  const KnownInts known = infer_ints(graph);
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    std::vector<std::int64_t> target;
    if (match_known(graph, known, node)) {
      if (!context.may_change(graph, id)) break;
      const Value& value = graph.value(node.out[0]);
      const auto& elements = *known[static_cast<std::size_t>(node.out[0])];
      replace_by_constants(graph, id, {ints_tensor(value.dtype, value.shape.sizes(), elements)});
      ++count;
    } else if (match_reshape(graph, known, node, target)) {
      if (!context.may_change(graph, id)) break;
      rewrite_target(graph, id, target);
      ++count;
    } else if (target.clear(), match_expand(graph, known, node, target)) {
      if (!context.may_change(graph, id)) break;
      rewrite_target(graph, id, target);
      ++count;
    }
  }
  return count;
}

}  // namespace

const Pass kFoldShapes = {
    "fold_shapes", "make constants of shapes that are known, and of Reshape targets with one open size",
    fold_shapes};

}  // namespace pare
