#include <algorithm>
#include <optional>
#include <utility>

#include "engine/ir/schema.h"
#include "graphsurgeon/passes/passes.h"

namespace pare {
namespace {

using Perm = std::vector<std::int64_t>;

std::optional<Perm> perm_of(const Graph& graph, ValueId id) {
  if (id == ValueId::kNone) return std::nullopt;
  const NodeId producer = graph.producer(id);
  if (producer == NodeId::kNone || !graph.node(producer).is("Transpose")) return std::nullopt;
  const Perm perm = graph.node(producer).attr_ints("perm");
  Perm sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != static_cast<std::int64_t>(i)) return std::nullopt;
  if (perm.empty()) return std::nullopt;
  return perm;
}

Perm inverse(const Perm& perm) {
  Perm back(perm.size());
  for (std::size_t i = 0; i < perm.size(); ++i)
    back[static_cast<std::size_t>(perm[i])] = static_cast<std::int64_t>(i);
  return back;
}

bool one_operand(const Node& node) {
  constexpr const char* kOps[] = {
      "Relu",  "LeakyRelu", "Sigmoid",  "Tanh",  "Elu",  "Selu",       "Celu",
      "Gelu",  "Exp",       "Log",      "Sqrt",  "Abs",  "Neg",        "Erf",
      "Floor", "Ceil",      "Round",    "Sign",  "Cast", "HardSwish",  "HardSigmoid",
      "Mish",  "Softplus",  "Softsign", "Swish", "Not",  "Reciprocal", "ThresholdedRelu"};
  return node.in.size() == 1 &&
         std::any_of(std::begin(kOps), std::end(kOps), [&](const char* op) { return node.is(op); });
}

bool two_operands(const Node& node) {
  constexpr const char* kOps[] = {"Add", "Sub", "Mul", "Div", "Min", "Max", "Pow"};
  return node.in.size() == 2 &&
         std::any_of(std::begin(kOps), std::end(kOps), [&](const char* op) { return node.is(op); });
}

// A constant that broadcasts to rank: its dims with ones in front.
std::optional<Dims> padded_dims(const Graph& graph, ValueId id, std::size_t rank) {
  if (!graph.is_constant(id)) return std::nullopt;
  Dims dims = graph.value(id).constant.dims();
  if (dims.size() > rank) return std::nullopt;
  dims.insert(dims.begin(), rank - dims.size(), 1);
  return dims;
}

// Moving it costs nothing: a number, or at most one axis that is not 1 (a vector of channels).
bool only_reshaped(const Dims& dims) {
  return std::count_if(dims.begin(), dims.end(), [](std::int64_t d) { return d != 1; }) <= 1;
}

struct Match {
  Perm perm;
  bool clip = false;
};

// The node gives the same when its operands are not transposed and its result is instead.
bool match(const Graph& graph, NodeId id, Match& found) {
  const Node& node = graph.node(id);
  if (node.out.size() != 1 || node.in.empty()) return false;
  const bool clip = node.is("Clip");
  if (one_operand(node) || clip) {
    const auto perm = perm_of(graph, node.in[0]);
    if (!perm || graph.only_user(node.in[0]) != id) return false;
    found = {*perm, clip};
    return true;
  }
  if (!two_operands(node)) return false;
  for (std::size_t slot = 0; slot < 2; ++slot) {
    const auto perm = perm_of(graph, node.in[slot]);
    if (!perm) continue;
    const ValueId other = node.in[1 - slot];
    const auto same = perm_of(graph, other);
    const auto dims = padded_dims(graph, other, perm->size());
    const bool alone = graph.only_user(node.in[slot]) == id;
    if (same && *same == *perm && other != node.in[slot] && (alone || graph.only_user(other) == id)) {
      found = {*perm, false};
      return true;
    }
    if (!same && dims && only_reshaped(*dims) && alone) {
      found = {*perm, false};
      return true;
    }
  }
  return false;
}

// Going on, the Transpose meets another: one of the two goes.
bool leads_to_transpose(const Graph& graph, NodeId id, int depth) {
  const NodeId next = graph.only_user(graph.node(id).out[0]);
  if (next == NodeId::kNone || depth == 0) return false;
  const Node& node = graph.node(next);
  if (node.is("Transpose")) return true;
  if (two_operands(node)) {
    const ValueId other = node.in[node.in[0] == graph.node(id).out[0] ? 1 : 0];
    if (perm_of(graph, other)) return true;
    const auto dims = padded_dims(graph, other, 8);
    if (!dims || !only_reshaped(*dims)) return false;
  } else if (!one_operand(node) && !node.is("Clip")) {
    return false;
  }
  return leads_to_transpose(graph, next, depth - 1);
}

// Element i of the result of a constant is where the untransposed operand wants it.
ValueId untransposed(Graph& graph, ValueId id, const Perm& perm) {
  const Dims dims = *padded_dims(graph, id, perm.size());
  if (graph.value(id).constant.size() == 1) return id;
  const Perm back = inverse(perm);
  Dims moved;
  for (const std::int64_t axis : back) moved.push_back(dims[static_cast<std::size_t>(axis)]);
  return graph.add_constant(graph.value(id).name + "_transposed", graph.value(id).constant.reshaped(moved));
}

void push(Graph& graph, NodeId id, const Match& found) {
  const Node node = graph.node(id);
  for (std::size_t slot = 0; slot < (found.clip ? 1 : node.in.size()); ++slot) {
    const ValueId in = node.in[slot];
    const auto perm = perm_of(graph, in);
    graph.set_input(id, static_cast<int>(slot),
                    perm ? graph.node(graph.producer(in)).in[0] : untransposed(graph, in, found.perm));
  }
  Value inner;
  inner.name = graph.value(node.out[0]).name + "_untransposed";
  inner.dtype = graph.value(node.out[0]).dtype;
  const ValueId middle = graph.add_value(std::move(inner));
  graph.set_output(id, 0, middle);
  Node transpose;
  transpose.op = "Transpose";
  transpose.name = node.name.empty() ? "" : node.name + "_transpose";
  transpose.attrs["perm"] = found.perm;
  transpose.in = {middle};
  transpose.out = {node.out[0]};
  graph.insert_after(id, std::move(transpose));
}

int push_transposes(Graph& graph, PassContext& context) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    Match found;
    if (!match(graph, id, found)) continue;
    const bool two = two_operands(graph.node(id)) && perm_of(graph, graph.node(id).in[0]) &&
                     perm_of(graph, graph.node(id).in[1]);
    if (!two && !leads_to_transpose(graph, id, 32)) continue;
    if (!context.may_change(graph, id)) break;
    push(graph, id, found);
    ++count;
  }
  return count;
}

}  // namespace

const Pass kPushTransposes = {"push_transposes",
                              "move a Transpose behind element-wise nodes where it then meets another one",
                              push_transposes};

}  // namespace pare
