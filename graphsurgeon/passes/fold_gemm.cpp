#include "graphsurgeon/passes/passes.h"

namespace pare {
namespace {

// --- MatMul and Add

// Gemm adds C where its shape broadcasts to [m, n] and never the other way.
bool broadcasts_into(const Shape& c, const Shape& product) {
  if (!c.ranked || c.dims.size() > 2) return false;
  for (std::size_t i = 0; i < c.dims.size(); ++i) {
    const Dim& dim = c.dims[c.dims.size() - 1 - i];
    if (!(dim.known() && dim.value == 1) && !dim.same(product.dims[1 - i])) return false;
  }
  return true;
}

// The slot of the Add that the MatMul feeds, or -1.
int match_add(const Graph& graph, NodeId id) {
  const Node& add = graph.node(id);
  if (!add.is("Add") || add.in.size() != 2 || add.in[0] == add.in[1]) return -1;
  for (int slot = 0; slot < 2; ++slot) {
    const ValueId product = add.in[static_cast<std::size_t>(slot)],
                  c = add.in[static_cast<std::size_t>(1 - slot)];
    const NodeId producer = graph.producer(product);
    if (producer == NodeId::kNone || !graph.node(producer).is("MatMul") || graph.only_user(product) != id)
      continue;
    const Node& matmul = graph.node(producer);
    const DType type = graph.value(product).dtype;
    if (type != DType::kF32 && type != DType::kF16 && type != DType::kBF16 && type != DType::kF64) continue;
    if (graph.value(matmul.in[0]).shape.rank() != 2 || graph.value(matmul.in[1]).shape.rank() != 2) continue;
    if (graph.value(product).shape.rank() != 2) continue;
    if (broadcasts_into(graph.value(c).shape, graph.value(product).shape)) return slot;
  }
  return -1;
}

int fold_matmul_add(Graph& graph, PassContext& context) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    const int slot = match_add(graph, id);
    if (slot < 0) continue;
    if (!context.may_change(graph, id)) break;
    const Node add = graph.node(id);
    const NodeId matmul = graph.producer(add.in[static_cast<std::size_t>(slot)]);
    Node gemm = graph.node(matmul);
    gemm.op = "Gemm";
    gemm.in.resize(2);
    gemm.in.push_back(add.in[static_cast<std::size_t>(1 - slot)]);
    const ValueId result = add.out[0];
    gemm.out = {result};
    graph.set_output(id, 0, ValueId::kNone);
    graph.insert_before(id, std::move(gemm));
    graph.remove_node(id);
    graph.remove_node(matmul);
    ++count;
  }
  return count;
}

// --- Transpose before Gemm

bool swaps_two_axes(const Node& node, const Shape& in) {
  if (!node.is("Transpose") || in.rank() != 2) return false;
  const std::vector<std::int64_t> perm = node.attr_ints("perm");
  return perm.empty() || perm == std::vector<std::int64_t>{1, 0};
}

int fold_transpose(Graph& graph, PassContext& context) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    if (!graph.node(id).is("Gemm")) continue;
    for (int slot = 0; slot < 2; ++slot) {
      const ValueId in = graph.node(id).in[static_cast<std::size_t>(slot)];
      const NodeId producer = graph.producer(in);
      if (producer == NodeId::kNone) continue;
      const ValueId x = graph.node(producer).in[0];
      if (!swaps_two_axes(graph.node(producer), graph.value(x).shape)) continue;
      if (!context.may_change(graph, id)) return count;
      const char* key = slot == 0 ? "transA" : "transB";
      const std::int64_t now = graph.node(id).attr(key, std::int64_t{0}) != 0 ? 0 : 1;
      graph.node(id).attrs[key] = now;
      graph.set_input(id, slot, x);
      ++count;
    }
  }
  return count;
}

}  // namespace

const Pass kFoldMatMulAdd = {"fold_matmul_add", "make one Gemm of a MatMul of matrices and the Add behind it",
                             fold_matmul_add};
const Pass kFoldTranspose = {
    "fold_transpose", "let a Gemm transpose for itself instead of a Transpose before it", fold_transpose};

}  // namespace pare
