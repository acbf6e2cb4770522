#include "graphsurgeon/graph_copy.h"

#include "engine/base/error.h"

namespace pare {
namespace {

bool same_tensor(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.dims() == b.dims() && (a.data() == b.data() || equal_bytes(a, b));
}

}  // namespace

GraphCopy::GraphCopy(const Graph& from, Graph& to)
    : from_(from),
      to_(to),
      values_(from.value_count(), ValueId::kNone),
      nodes_(from.node_capacity(), NodeId::kNone) {}

void GraphCopy::bind(ValueId id, ValueId twin) { values_.at(static_cast<std::size_t>(id)) = twin; }
void GraphCopy::bind(NodeId id, NodeId twin) { nodes_.at(static_cast<std::size_t>(id)) = twin; }

ValueId GraphCopy::twin(ValueId id) const {
  return id == ValueId::kNone ? id : values_.at(static_cast<std::size_t>(id));
}
NodeId GraphCopy::twin(NodeId id) const {
  return id == NodeId::kNone ? id : nodes_.at(static_cast<std::size_t>(id));
}

ValueId GraphCopy::value(ValueId id) {
  if (id == ValueId::kNone) return id;
  ValueId& known = values_.at(static_cast<std::size_t>(id));
  if (known != ValueId::kNone) return known;
  Value copy = from_.value(id);
  if (copy.is_constant()) {
    const ValueId there = to_.find_value(copy.name);
    if (there != ValueId::kNone && to_.is_constant(there) &&
        same_tensor(to_.value(there).constant, copy.constant))
      return known = there;
  }
  copy.producer = NodeId::kNone;
  copy.producer_slot = 0;
  return known = to_.add_value(std::move(copy));
}

NodeId GraphCopy::node(NodeId id) {
  Node copy = from_.node(id);
  for (ValueId& in : copy.in) in = value(in);
  for (ValueId& out : copy.out) {
    PARE_ASSERT(twin(out) == ValueId::kNone);
    out = value(out);
  }
  const NodeId made = to_.add_node(std::move(copy));
  nodes_.at(static_cast<std::size_t>(id)) = made;
  return made;
}

}  // namespace pare
