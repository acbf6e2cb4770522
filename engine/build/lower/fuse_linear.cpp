// Finding comes first and changes nothing (follow_chain); the rewrite puts one node where the last of the
// chain stood, so every input it gained is computed by then.
#include "engine/build/lower/linear_chain.h"
#include "engine/build/lower/lowering.h"

namespace pare::lowering {
namespace {

bool is_plain_linear(const Graph& graph, const Node& node) {
  if (node.out.empty() || node.out[0] == ValueId::kNone) return false;
  if (graph.value(node.out[0]).dtype != DType::kF32) return false;
  if (node.is("Conv") || node.is("ConvTranspose")) {
    return graph.value(node.in[0]).shape.rank() == 4 && graph.is_constant(node.in[1]) &&
           (node.in.size() < 3 || node.in[2] == ValueId::kNone || graph.is_constant(node.in[2])) &&
           node.attr("auto_pad", "NOTSET") == "NOTSET" && node.attr_ints("output_shape").empty();
  }
  if (node.is("pare", "WMatMul")) return true;
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
  if (linear.is("Conv") || linear.is("ConvTranspose")) {
    fused.op = linear.op;
    set_conv_attributes(graph, linear, fused);
  } else if (linear.is("pare", "WMatMul")) {
    fused.op = linear.op;
    fused.in = linear.in;
    fused.in.resize(6, ValueId::kNone);
    fused.in[4] = chain.bias;
    fused.in[5] = chain.residual;
    while (fused.in.back() == ValueId::kNone) fused.in.pop_back();
    for (const auto& [key, value] : linear.attrs) fused.attrs.emplace(key, value);
  } else {
    fused.op = "MatMul";
    if (linear.attr("transB", std::int64_t{0}) != 0) fused.attrs["trans_b"] = std::int64_t{1};
  }
  replace_chain(graph, chain, std::move(fused));
}

// A Transpose of the last two axes and nothing else.
bool swaps_last_two(const Node& node) {
  if (!node.is("Transpose")) return false;
  std::vector<std::int64_t> perm = node.attr_ints("perm");
  const std::size_t n = perm.size();
  if (n < 2) return false;
  std::swap(perm[n - 2], perm[n - 1]);
  for (std::size_t i = 0; i < n; ++i)
    if (perm[i] != static_cast<std::int64_t>(i)) return false;
  return true;
}

bool one_float(const Graph& graph, ValueId id, float& out) {
  if (!graph.is_constant(id) || graph.value(id).dtype != DType::kF32 || graph.value(id).constant.size() != 1)
    return false;
  out = *graph.value(id).constant.as<float>();
  return true;
}

// The product of two activations, as attention has them: MatMul(a, Transpose(b)) scaled by a constant becomes
// pare.MatMul(a, b) with trans_b and alpha.
void fuse_product(Graph& graph, NodeId id, const Kept& kept) {
  const Node node = graph.node(id);
  if (graph.is_constant(node.in[0]) || graph.is_constant(node.in[1])) return;
  Chain chain;
  chain.linear = id;
  chain.nodes = {id};
  chain.result = node.out[0];
  Node fused;
  fused.domain = "pare";
  fused.op = "MatMul";
  fused.name = node.name;
  fused.in = node.in;
  const NodeId transpose = graph.producer(node.in[1]);
  const bool transposed = transpose != NodeId::kNone && swaps_last_two(graph.node(transpose));
  if (transposed) {
    fused.in[1] = graph.node(transpose).in[0];
    fused.attrs["trans_b"] = std::int64_t{1};
  }
  const NodeId next = graph.only_user(node.out[0]);
  float factor = 1;
  bool scaled = false;
  if (next != NodeId::kNone && !kept(node.out[0])) {
    const Node& scale = graph.node(next);
    const bool rank_stays = scale.out.size() == 1 &&
                            graph.value(scale.out[0]).shape.rank() == graph.value(node.out[0]).shape.rank();
    if (rank_stays && scale.is("Div") && scale.in[0] == node.out[0] &&
        one_float(graph, scale.in[1], factor)) {
      factor = 1 / factor;
      scaled = true;
    } else if (rank_stays && scale.is("Mul")) {
      scaled = one_float(graph, scale.in[scale.in[0] == node.out[0] ? 1 : 0], factor);
    }
    if (scaled) {
      chain.nodes.push_back(next);
      chain.result = scale.out[0];
      fused.attrs["alpha"] = factor;
    }
  }
  if (transposed || scaled) replace_chain(graph, chain, std::move(fused));
}

}  // namespace

void fuse_linear(Graph& graph, const Kept& kept) {
  for (const NodeId id : graph.nodes()) {
    if (!graph.alive(id)) continue;
    if (is_plain_linear(graph, graph.node(id))) {
      rewrite(graph, follow_chain(graph, id, kept));
    } else if (graph.node(id).is("MatMul") && graph.value(graph.node(id).out[0]).dtype == DType::kF32) {
      fuse_product(graph, id, kept);
    }
  }
}

}  // namespace pare::lowering
