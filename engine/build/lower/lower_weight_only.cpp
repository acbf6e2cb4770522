// MatMul and Gemm whose weight is DequantizeLinear of constant codes become pare.WMatMul, which keeps the
// codes: the sums are the same in every bit (engine/ops/matmul/wmatmul.h), the memory and what is read of it
// a fraction.
#include "engine/build/lower/linear_chain.h"
#include "engine/build/lower/lowering.h"
#include "engine/numeric/convert.h"
#include "engine/ops/matmul/wmatmul.h"
#include "engine/run/evaluate.h"

namespace pare::lowering {
namespace {

ValueId input_or_none(const Node& node, std::size_t i) {
  return i < node.in.size() ? node.in[i] : ValueId::kNone;
}

bool swaps_matrix(const Graph& graph, const Node& node) {
  if (!node.is("Transpose") || graph.value(node.in[0]).shape.rank() != 2) return false;
  const std::vector<std::int64_t> perm = node.attr_ints("perm");
  return perm.empty() || perm == std::vector<std::int64_t>{1, 0};
}

// Makes a constant of a value that follows from constants, by a few nodes at most (scales of two levels).
bool fold_value(Graph& graph, ValueId id, int depth) {
  if (graph.is_constant(id)) return true;
  const NodeId producer = graph.producer(id);
  if (producer == NodeId::kNone || depth == 0) return false;
  const std::vector<ValueId> in = graph.node(producer).in, out = graph.node(producer).out;
  for (const ValueId each : in)
    if (each != ValueId::kNone && !fold_value(graph, each, depth - 1)) return false;
  if (out.size() != 1 || !is_foldable(graph, graph.node(producer))) return false;
  const Tensor result = evaluate_constant_node(graph, graph.node(producer))[0];
  graph.remove_node(producer);
  Value& value = graph.value(id);
  value.constant = result;
  value.dtype = result.dtype();
  value.shape = Shape(result.dims());
  return true;
}

// The scales as a constant of float32, widened from powers of two. kNone where they are none; then the
// product is left as it is.
ValueId float_scales(Graph& graph, ValueId id) {
  constexpr int kLevels = 3;
  if (!fold_value(graph, id, kLevels)) return ValueId::kNone;
  const Tensor scales = graph.value(id).constant;
  if (scales.dtype() == DType::kF32) return id;
  if (scales.dtype() != DType::kE8M0) return ValueId::kNone;
  Tensor wide = Tensor::allocate(DType::kF32, scales.dims());
  decode(DType::kE8M0, scales.data(), wide.mut<float>(), wide.size());
  return graph.add_constant(graph.value(id).name + "_float", std::move(wide));
}

struct Weight {
  NodeId dq = NodeId::kNone;
  bool trans_b = false;
  std::int64_t block = 0;
};

// The DequantizeLinear behind input 1 of a product, perhaps behind a Transpose.
bool find_weight(const Graph& graph, const Node& node, const Kept& kept, Weight& weight) {
  NodeId id = graph.producer(node.in[1]);
  if (id == NodeId::kNone || kept(node.in[1])) return false;
  weight.trans_b = node.attr("transB", std::int64_t{0}) != 0;
  if (swaps_matrix(graph, graph.node(id))) {
    weight.trans_b = !weight.trans_b;
    const ValueId from = graph.node(id).in[0];
    id = graph.producer(from);
    if (id == NodeId::kNone || kept(from)) return false;
  }
  const Node& dq = graph.node(id);
  if (!dq.is("DequantizeLinear") || !graph.is_constant(dq.in[0])) return false;
  const Tensor& codes = graph.value(dq.in[0]).constant;
  if (codes.dims().size() != 2 || !wmatmul_keeps(codes.dtype())) return false;
  const ValueId zero = input_or_none(dq, 2);
  if (zero != ValueId::kNone && !graph.is_constant(zero)) return false;
  weight.dq = id;
  weight.block = dq.attr("block_size", std::int64_t{0});
  const std::int64_t axis = dq.attr("axis", std::int64_t{1}), along = axis < 0 ? axis + 2 : axis;
  const std::int64_t axis_k = weight.trans_b ? 1 : 0;
  const Shape& shape = graph.value(dq.in[1]).shape;
  if (!shape.concrete()) return false;
  const Dims scales = shape.sizes();
  if (zero != ValueId::kNone &&
      (graph.value(zero).constant.dims() != scales || graph.value(zero).constant.dtype() != codes.dtype()))
    return false;
  Dims want = codes.dims();  // what does not fit is left to DequantizeLinear, which says so
  if (weight.block > 0) {
    std::int64_t& size = want[static_cast<std::size_t>(axis_k)];
    size = (size + weight.block - 1) / weight.block;
    return along == axis_k && scales == want;
  }
  return element_count(scales) == 1 ||
         (along == 1 - axis_k && scales == Dims{want[static_cast<std::size_t>(1 - axis_k)]});
}

bool is_plain_product(const Graph& graph, const Node& node) {
  if (node.out.empty() || node.out[0] == ValueId::kNone || graph.value(node.out[0]).dtype != DType::kF32 ||
      graph.value(node.in[0]).dtype != DType::kF32)
    return false;
  if (node.is("MatMul")) return graph.value(node.in[0]).shape.rank() >= 1;
  return node.is("Gemm") && node.attr("transA", std::int64_t{0}) == 0 && node.attr("alpha", 1.0f) == 1.0f &&
         node.attr("beta", 1.0f) == 1.0f &&
         (input_or_none(node, 2) == ValueId::kNone ||
          is_row_vector(graph, node.in[2], result_width(graph, node)));
}

}  // namespace

void lower_weight_only(Graph& graph, const Kept& kept) {
  for (const NodeId id : graph.nodes()) {
    if (!graph.alive(id) || !is_plain_product(graph, graph.node(id))) continue;
    const Node node = graph.node(id);
    Weight weight;
    if (!find_weight(graph, node, kept, weight)) continue;
    const Node dq = graph.node(weight.dq);
    const ValueId scales = float_scales(graph, dq.in[1]);
    if (scales == ValueId::kNone) continue;
    Node fused;
    fused.domain = "pare";
    fused.op = "WMatMul";
    fused.name = node.name;
    fused.in = {node.in[0], dq.in[0], scales, input_or_none(dq, 2), input_or_none(node, 2)};
    while (fused.in.back() == ValueId::kNone) fused.in.pop_back();
    if (weight.trans_b) fused.attrs["trans_b"] = std::int64_t{1};
    if (weight.block > 0) fused.attrs["block_size"] = weight.block;
    Chain chain;
    chain.linear = id;
    chain.nodes = {id};
    chain.result = node.out[0];
    replace_chain(graph, chain, std::move(fused));
  }
}

}  // namespace pare::lowering
