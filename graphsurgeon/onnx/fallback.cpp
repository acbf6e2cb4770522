#include "graphsurgeon/onnx/fallback.h"

#include <memory>

#include "engine/base/error.h"
#include "engine/ir/fallback.h"
#include "engine/ir/schema.h"
#include "engine/ir/subgraph.h"
#include "engine/ops/registry.h"
#include "graphsurgeon/onnx/function_body.h"

namespace pare {
namespace {

// A value as a kernel would see it, with 2 for sizes that are not known; false when the rank is not known.
bool view_of(const Graph& graph, ValueId id, TensorView& view) {
  if (id == ValueId::kNone) return true;
  const Value& value = graph.value(id);
  if (value.is_constant()) {
    view = value.constant.view();
    return true;
  }
  if (value.dtype == DType::kUndefined || !value.shape.ranked || value.kind != ValueKind::kTensor)
    return false;
  view.dtype = value.dtype;
  for (const Dim& dim : value.shape.dims) view.dims.push_back(dim.known() ? dim.value : 2);
  return true;
}

// False also when that cannot be told.
bool no_kernel_takes(const Graph& graph, const Node& node) {
  const OpSchema* schema = find_schema(node.domain, node.op);
  if (schema == nullptr || !schema->tensors || has_subgraph(node)) return false;
  std::vector<TensorView> in(node.in.size()), out(node.out.size());
  for (std::size_t i = 0; i < in.size(); ++i)
    if (!view_of(graph, node.in[i], in[i])) return false;
  for (std::size_t i = 0; i < out.size(); ++i)
    if (!view_of(graph, node.out[i], out[i])) return false;
  OpCall call;
  call.node = &node;
  call.in = in;
  call.out = out;
  for (const Kernel* kernel : cpu_registry().candidates(node.domain, node.op, Backend::kCpu))
    if (kernel->why_not(call).empty()) return false;
  return true;
}

}  // namespace

int attach_fallbacks(Graph& graph) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    for (const std::string& key : subgraph_attributes(graph.node(id)))
      count += attach_fallbacks(own_subgraph_at(graph, {{id, key}}));
    Node& node = graph.node(id);
    if (!node.domain.empty() || !no_kernel_takes(graph, node)) continue;
    try {
      const std::shared_ptr<Graph> body = function_body(graph, node);
      if (body == nullptr) continue;
      body->name = fallback_signature(node);
      node.fallback = body;
      ++count;
    } catch (const Error&) {  // the body is for another form of the operator: no fallback
    }
  }
  return count;
}

}  // namespace pare
