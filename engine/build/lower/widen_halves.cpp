// float16 and bfloat16 in float32: the operators that have no kernels of their own for narrow floats get
// their inputs widened (constants now, others by a Cast) and their results rounded once, which is what their
// plain kernels do. The float32 kernels, and what lowering makes of them, then serve both.
#include <algorithm>

#include "engine/build/lower/lowering.h"
#include "engine/numeric/convert.h"

namespace pare::lowering {
namespace {

bool is_half(DType type) { return type == DType::kF16 || type == DType::kBF16; }

bool is_widened(const Node& node) {
  static const char* const kOps[] = {"Conv",
                                     "ConvTranspose",
                                     "MatMul",
                                     "Gemm",
                                     "MaxPool",
                                     "AveragePool",
                                     "Resize",
                                     "GlobalAveragePool",
                                     "GlobalMaxPool",
                                     "LSTM",
                                     "GRU",
                                     "RNN",
                                     "Einsum",
                                     "GroupNormalization",
                                     "InstanceNormalization",
                                     "GridSample",
                                     "BatchNormalization"};
  return node.domain.empty() &&
         std::any_of(std::begin(kOps), std::end(kOps), [&](const char* op) { return node.op == op; });
}

ValueId widened(Graph& graph, ValueId id, NodeId where) {
  if (graph.is_constant(id)) {
    const Tensor& narrow = graph.value(id).constant;
    Tensor wide = Tensor::allocate(DType::kF32, narrow.dims());
    convert(narrow.view(), {DType::kF32, narrow.dims(), wide.mut<float>()});
    return graph.add_constant(graph.value(id).name + "_wide", std::move(wide));
  }
  Value value = graph.value(id);
  value.name += "_wide";
  value.origin.clear();
  value.dtype = DType::kF32;
  value.producer = NodeId::kNone;
  Node cast;
  cast.op = "Cast";
  cast.name = value.name;
  cast.in = {id};
  cast.out = {graph.add_value(std::move(value))};
  cast.attrs["to"] = static_cast<std::int64_t>(DType::kF32);
  const ValueId out = cast.out[0];
  graph.insert_before(where, std::move(cast));
  return out;
}

}  // namespace

void widen_halves(Graph& graph) {
  for (const NodeId id : graph.nodes()) {
    const Node node = graph.node(id);
    if (!is_widened(node) || node.in.empty() || node.in[0] == ValueId::kNone ||
        !is_half(graph.value(node.in[0]).dtype))
      continue;
    const DType narrow = graph.value(node.in[0]).dtype;
    for (std::size_t slot = 0; slot < node.in.size(); ++slot) {
      const ValueId in = node.in[slot];
      if (in != ValueId::kNone && graph.value(in).dtype == narrow)
        graph.set_input(id, static_cast<int>(slot), widened(graph, in, id));
    }
    for (std::size_t slot = 0; slot < node.out.size(); ++slot) {
      const ValueId out = node.out[slot];
      if (out == ValueId::kNone || graph.value(out).dtype != narrow) continue;
      Value value = graph.value(out);
      value.name += "_unrounded";
      value.origin.clear();
      value.dtype = DType::kF32;
      value.producer = NodeId::kNone;
      const ValueId wide = graph.add_value(std::move(value));
      graph.set_output(id, static_cast<int>(slot), wide);
      Node cast;
      cast.op = "Cast";
      cast.name = graph.value(out).name + "_rounded";
      cast.in = {wide};
      cast.out = {out};
      cast.attrs["to"] = static_cast<std::int64_t>(narrow);
      graph.insert_after(id, std::move(cast));
    }
  }
}

}  // namespace pare::lowering
