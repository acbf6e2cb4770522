// Finding comes first and changes nothing (follow_chain); the rewrite puts one node where the last of the
// chain stood, so every input it gained is computed by then.
#include "engine/build/linear_chain.h"
#include "engine/build/lowering.h"

namespace pare::lowering {
namespace {

bool is_plain_linear(const Graph& graph, const Node& node) {
  if (graph.value(node.out[0]).dtype != DType::kF32) return false;
  if (node.is("Conv")) {
    return graph.value(node.in[0]).shape.rank() == 4 && graph.is_constant(node.in[1]) &&
           (node.in.size() < 3 || node.in[2] == ValueId::kNone || graph.is_constant(node.in[2])) &&
           node.attr("auto_pad", "NOTSET") == "NOTSET";
  }
  if (node.is("MatMul")) return graph.is_constant(node.in[1]) && graph.value(node.in[1]).shape.rank() == 2;
  if (node.is("Gemm"))
    return graph.is_constant(node.in[1]) && node.attr("transA", std::int64_t{0}) == 0 &&
           node.attr("alpha", 1.0f) == 1.0f && node.attr("beta", 1.0f) == 1.0f &&
           (node.in.size() < 3 || node.in[2] == ValueId::kNone ||
            is_row_vector(graph, node.in[2], result_width(graph, node)));
  return false;
}

void rewrite(Graph& graph, const Chain& chain) {
  const Node linear = graph.node(chain.linear);
  Node fused;
  fused.domain = "pare";
  fused.name = linear.name;
  fused.attrs = chain.activation_attrs;
  if (!chain.activation.empty()) fused.attrs["activation"] = chain.activation;
  fused.in = {linear.in[0], linear.in[1], chain.bias, chain.residual};
  while (fused.in.back() == ValueId::kNone) fused.in.pop_back();
  fused.out = {chain.result};
  if (linear.is("Conv")) {
    fused.op = "Conv";
    set_conv_attributes(linear, fused);
  } else {
    fused.op = "MatMul";
    if (linear.attr("transB", std::int64_t{0}) != 0) fused.attrs["trans_b"] = std::int64_t{1};
  }
  replace_chain(graph, chain, std::move(fused));
}

}  // namespace

void fuse_linear(Graph& graph, const Kept& kept) {
  for (const NodeId id : graph.nodes()) {
    if (!graph.alive(id) || !is_plain_linear(graph, graph.node(id))) continue;
    rewrite(graph, follow_chain(graph, id, kept));
  }
}

}  // namespace pare::lowering
