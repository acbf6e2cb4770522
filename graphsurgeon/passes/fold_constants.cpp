#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/ir/schema.h"
#include "engine/run/evaluate.h"
#include "graphsurgeon/passes/passes.h"

namespace pare {
namespace {

// Quantized weights stay quantized, whoever wrote them: Q/DQ says how a target shall compute.
bool is_quantization(const Node& node) {
  return node.is("QuantizeLinear") || node.is("DequantizeLinear") || node.is("DynamicQuantizeLinear") ||
         !node.domain.empty();
}

// Bytes that the outputs would take, -1 when no rule says.
std::int64_t output_bytes(const Graph& graph, const Node& node) {
  std::vector<TensorView> in;
  for (const ValueId id : node.in)
    in.push_back(id == ValueId::kNone ? TensorView{} : graph.value(id).constant.view());
  bool reads_values = false;
  std::int64_t bytes = 0;
  const std::vector<OutputType> types = infer_node(graph, node, in, &reads_values);
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (node.out[i] == ValueId::kNone) return -1;  // an evaluation gives all outputs or none
    if (types[i].open()) {  // NonZero, Unique: as many int64 as there are elements, along each axis
      for (const TensorView& view : in)
        if (view.present())
          bytes += 8 * view.size() * std::max<std::int64_t>(1, static_cast<std::int64_t>(view.dims.size()));
      continue;
    }
    bytes += byte_count(types[i].dtype, types[i].dims);
  }
  return bytes;
}

// Bytes of constants that nobody would read any more.
std::int64_t freed_bytes(const Graph& graph, const Node& node) {
  std::int64_t bytes = 0;
  for (const ValueId id : node.in)
    if (id != ValueId::kNone && graph.users(id).size() == 1 && !graph.is_output(id))
      bytes += graph.value(id).constant.bytes();
  return bytes;
}

int fold_constants(Graph& graph, PassContext& context) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    if (is_quantization(node) || !is_foldable(graph, node) || node.out.empty()) continue;
    try {
      const std::int64_t bytes = output_bytes(graph, node);
      const std::int64_t growth = bytes - freed_bytes(graph, node);
      if (bytes < 0 || growth > context.growth_at_once || growth > context.growth_left) continue;
      std::vector<Tensor> values = evaluate_constant_node(graph, node);
      if (!context.may_change(graph, id)) break;
      if (growth > 0) context.growth_left -= growth;
      replace_by_constants(graph, id, std::move(values));
      ++count;
    } catch (const Error& error) {
      // No kernel, or a node that would fail in a run too: it stays, and the run says what is wrong.
      if (error.code() == ErrorCode::kInternal || error.code() == ErrorCode::kDevice ||
          error.code() == ErrorCode::kInterrupted)
        throw;
    }
  }
  return count;
}

}  // namespace

const Pass kFoldConstants = {"fold_constants", "compute once what depends on constants only", fold_constants};

}  // namespace pare
