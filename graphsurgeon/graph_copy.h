// Copies parts of one graph into another, node by node. Constants share their memory, subgraphs are shared
// until someone changes them. Names stay where they are free in the target.
#pragma once

#include <vector>

#include "engine/ir/graph.h"

namespace pare {

class GraphCopy {
 public:
  // Both must outlive this object; `from` must not change meanwhile.
  GraphCopy(const Graph& from, Graph& to);

  // `id` of the source is `twin` in the target: inputs, and what stands there already.
  void bind(ValueId id, ValueId twin);
  // The twin in the target. Made when it is first asked for: a constant (or the equal one of that name which
  // the target has), otherwise a value that nothing computes yet.
  ValueId value(ValueId id);
  // Appends a copy; its inputs become what value() says. Its outputs must be unknown so far.
  NodeId node(NodeId id);
  // The node in the target that stands for it already.
  void bind(NodeId id, NodeId twin);

  ValueId twin(ValueId id) const;  // kNone: not copied
  NodeId twin(NodeId id) const;

 private:
  const Graph& from_;
  Graph& to_;
  std::vector<ValueId> values_;
  std::vector<NodeId> nodes_;
};

}  // namespace pare
