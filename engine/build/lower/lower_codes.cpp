#include "engine/build/lower/lower_codes.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "engine/base/error.h"
#include "engine/build/lower/linear_chain.h"
#include "engine/run/evaluate.h"

namespace pare::lowering {
namespace {

ValueId input_of(const Node& node, std::size_t i) { return i < node.in.size() ? node.in[i] : ValueId::kNone; }

const Node* producer_node(const Graph& graph, ValueId id) {
  if (id == ValueId::kNone || graph.producer(id) == NodeId::kNone) return nullptr;
  return &graph.node(graph.producer(id));
}

// A QuantizeLinear or DequantizeLinear between float32 and 8 bit codes with one constant scale.
bool is_per_tensor(const Graph& graph, const Node& node) {
  const bool quantizes = node.is("QuantizeLinear");
  if (!quantizes && !node.is("DequantizeLinear")) return false;
  const DType code = graph.value(quantizes ? node.out[0] : node.in[0]).dtype;
  const DType real = graph.value(quantizes ? node.in[0] : node.out[0]).dtype;
  if ((code != DType::kI8 && code != DType::kU8) || real != DType::kF32) return false;
  const auto precision = node.attr("precision", std::int64_t{0});
  if (precision != 0 && precision != static_cast<std::int64_t>(DType::kF32)) return false;
  if (node.attr("block_size", std::int64_t{0}) != 0) return false;
  if (!graph.is_constant(node.in[1]) || graph.value(node.in[1]).dtype != DType::kF32 ||
      graph.value(node.in[1]).constant.size() != 1)
    return false;
  const ValueId zero = input_of(node, 2);
  return zero == ValueId::kNone || (graph.is_constant(zero) && graph.value(zero).dtype == code &&
                                    graph.value(zero).constant.size() == 1);
}

const Node* dequantizer(const Graph& graph, ValueId id) {
  const Node* node = producer_node(graph, id);
  return node != nullptr && node->is("DequantizeLinear") && is_per_tensor(graph, *node) ? node : nullptr;
}

// One element of the result from one element of input 0; further inputs are constant scalars.
bool is_function_of_one(const Graph& graph, const Node& node) {
  constexpr std::array kOps = {"Relu",     "Clip", "Sigmoid",   "HardSwish", "HardSigmoid",
                               "Gelu",     "Tanh", "LeakyRelu", "Elu",       "Selu",
                               "Softplus", "Mish", "Abs",       "Neg",       "Sqrt",
                               "Exp",      "Erf",  "Softsign",  "Celu",      "ThresholdedRelu"};
  if (!node.domain.empty() || node.out.size() != 1) return false;
  if (std::none_of(kOps.begin(), kOps.end(), [&](const char* op) { return node.op == op; })) return false;
  for (std::size_t i = 1; i < node.in.size(); ++i)
    if (node.in[i] != ValueId::kNone && !graph.is_constant(node.in[i])) return false;
  return graph.value(node.out[0]).dtype == DType::kF32;
}

struct Match {
  std::vector<NodeId>
      nodes;       // between the DequantizeLinear (not among them) and the QuantizeLinear, which is last
  Node dq, other;  // other: the second operand's DequantizeLinear; its op is empty for a lookup
};

// Walks up from a QuantizeLinear over values that nobody else needs.
bool match(const Graph& graph, NodeId q_id, const Kept& kept, Match& m) {
  const Node& q = graph.node(q_id);
  if (!q.is("QuantizeLinear") || !is_per_tensor(graph, q)) return false;
  m.nodes = {q_id};
  ValueId value = q.in[0];
  int activations = 0;
  for (int steps = 0; steps < 16; ++steps) {
    if (graph.only_user(value) != m.nodes.front() || kept(value)) return false;
    const NodeId id = graph.producer(value);
    if (id == NodeId::kNone) return false;
    const Node& node = graph.node(id);
    if (node.is("Add") && activations <= 1) {
      const Node *a = dequantizer(graph, node.in[0]), *b = dequantizer(graph, node.in[1]);
      if (a == nullptr || b == nullptr || !same_shape(graph, node.in[0], node.in[1])) return false;
      m.nodes.insert(m.nodes.begin(), id);
      m.dq = *a, m.other = *b;
      Chain chain;  // the one activation must be one that kernels know
      return activations == 0 || as_activation(graph, graph.node(m.nodes[1]), chain);
    }
    if (!is_function_of_one(graph, node)) return false;
    ++activations;
    m.nodes.insert(m.nodes.begin(), id);
    value = node.in[0];
    if (const Node* dq = dequantizer(graph, value); dq != nullptr) {
      m.dq = *dq;
      return true;
    }
  }
  return false;
}

// What the matched nodes make of each of the 256 codes.
Tensor table_of(const Graph& graph, const Match& m) {
  std::array<std::uint8_t, 256> codes{};
  std::iota(codes.begin(), codes.end(), std::uint8_t{0});
  Tensor x = Tensor::copy_of(graph.value(m.dq.in[0]).dtype, {256}, codes.data(), codes.size());
  const auto apply = [&](const Node& node) {
    std::vector<Tensor> inputs = {x};
    for (std::size_t i = 1; i < node.in.size(); ++i)
      inputs.push_back(node.in[i] == ValueId::kNone ? Tensor{} : graph.value(node.in[i]).constant);
    x = evaluate_node(graph, node, inputs)[0];
  };
  apply(m.dq);
  for (const NodeId id : m.nodes) apply(graph.node(id));
  return Tensor::copy_of(DType::kU8, {256}, x.data(), 256);
}

ValueId zero_or_new(Graph& graph, const Node& q) {
  if (input_of(q, 2) != ValueId::kNone) return q.in[2];
  const std::uint8_t zero = 0;
  return graph.add_constant(q.name + "_zero", Tensor::copy_of(graph.value(q.out[0]).dtype, {}, &zero, 1));
}

void rewrite(Graph& graph, const Match& m) {
  const Node q = graph.node(m.nodes.back()), first = graph.node(m.nodes.front());
  Node node;
  node.domain = "pare";
  node.name = first.name;
  if (m.other.op.empty()) {
    node.op = "QLookup";
    node.attrs["y_dtype"] = static_cast<std::int64_t>(graph.value(q.out[0]).dtype);
    node.in = {m.dq.in[0], graph.add_constant(first.name + "_table", table_of(graph, m))};
  } else {
    node.op = "QAdd";
    Chain chain;
    if (m.nodes.size() > 2 && as_activation(graph, graph.node(m.nodes[1]), chain)) {
      node.attrs = chain.activation_attrs;
      node.attrs["activation"] = chain.activation;
    }
    node.in = {m.dq.in[0],    m.dq.in[1],           input_of(m.dq, 2), m.other.in[0],
               m.other.in[1], input_of(m.other, 2), q.in[1],           zero_or_new(graph, q)};
  }
  Chain chain;
  chain.nodes = m.nodes;
  chain.result = q.out[0];
  replace_chain(graph, chain, std::move(node));
}

// Moves elements and computes nothing: no precision to speak of.
bool only_moves(const Node& node) {
  constexpr std::array kOps = {"Concat",       "Expand",      "Flatten", "Gather",         "Identity",
                               "Reshape",      "Shape",       "Slice",   "Split",          "Squeeze",
                               "Transpose",    "Unsqueeze",   "Tile",    "GatherElements", "GatherND",
                               "DepthToSpace", "SpaceToDepth"};
  return std::any_of(kOps.begin(), kOps.end(), [&](const char* op) { return node.is(op); });
}

// The types of the codes that a node reads dequantized, "" when it reads none.
std::string requested(const Graph& graph, const Node& node) {
  std::string text;
  for (const ValueId in : node.in) {
    const Node* dq = producer_node(graph, in);
    if (dq == nullptr || !dq->is("DequantizeLinear")) continue;
    text += fmt::format("{}{}", text.empty() ? "" : " x ", name(graph.value(dq->in[0]).dtype));
  }
  return text;
}

}  // namespace

void lower_codes(Graph& graph, const Kept& kept, std::vector<Realized>& rows) {
  const std::vector<NodeId> order = graph.nodes();
  std::vector<Realized> found(graph.node_capacity());  // by the id of the row's node
  for (const NodeId id : order) {
    const Node& node = graph.node(id);
    const bool linear = node.is("Conv") || node.is("ConvTranspose") || node.is("Gemm") || node.is("MatMul");
    if (linear || !node.domain.empty() || only_moves(node)) continue;
    if (node.is("QuantizeLinear") || node.is("DequantizeLinear")) continue;
    Realized row{node.name, node.op, requested(graph, node), "float32 (fake-quantized)",
                 fmt::format("no integer kernel for this {}", node.op)};
    if (!row.requested.empty()) found[static_cast<std::size_t>(id)] = std::move(row);
  }
  for (const NodeId id : order) {
    Match m;
    if (!graph.alive(id) || !match(graph, id, kept, m)) continue;
    Realized& row = found[static_cast<std::size_t>(m.nodes.front())];
    row.realized = row.requested + " kernel";
    row.why.clear();
    rewrite(graph, m);
  }
  for (Realized& row : found)
    if (!row.requested.empty()) rows.push_back(std::move(row));
}

}  // namespace pare::lowering
