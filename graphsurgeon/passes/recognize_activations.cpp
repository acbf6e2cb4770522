#include <cmath>
#include <utility>

#include "graphsurgeon/passes/passes.h"
#include "graphsurgeon/passes/recognize.h"

namespace pare {
namespace {

// --- Gelu

// x of erf(x / sqrt(2)).
ValueId erf_argument(const Graph& graph, ValueId id) {
  const Node* erf = made_by(graph, id, "Erf");
  if (erf == nullptr) return ValueId::kNone;
  const Factors f = factors(graph, erf->in[0], {}, 1);
  return f.values.size() == 1 && are(f, f.values, std::sqrt(0.5)) ? f.values[0] : ValueId::kNone;
}

// x of tanh(sqrt(2 / pi) * (x + 0.044715 x^3)).
ValueId tanh_argument(const Graph& graph, ValueId id) {
  const Node* tanh = made_by(graph, id, "Tanh");
  if (tanh == nullptr) return ValueId::kNone;
  const Factors outer = factors(graph, tanh->in[0], {}, 2);
  if (outer.values.size() != 1 || !are(outer, outer.values, std::sqrt(2 / 3.14159265358979323846)))
    return ValueId::kNone;
  const Node* add = made_by(graph, outer.values[0], "Add");
  if (add == nullptr) return ValueId::kNone;
  for (const ValueId x : add->in) {
    const Factors cubic = factors(graph, other_operand(*add, x), {x});
    if (are(cubic, {x, x, x}, 0.044715)) return x;
    if (cubic.values.size() != 1 || !are(cubic, cubic.values, 0.044715)) continue;
    const Node* pow = made_by(graph, cubic.values[0], "Pow");
    if (pow != nullptr && pow->in[0] == x && is_number(graph, pow->in[1], 3)) return x;
  }
  return ValueId::kNone;
}

// x * (1 + inner(x)) / 2 with `id` the last product.
ValueId gelu_argument(const Graph& graph, ValueId id, bool& by_tanh) {
  const Factors all = factors(graph, id, {}, 3);
  for (const ValueId part : all.values) {
    const ValueId inner = plus_number(graph, part, 1);
    if (inner == ValueId::kNone) continue;
    for (by_tanh = false;; by_tanh = true) {
      const ValueId x = by_tanh ? tanh_argument(graph, inner) : erf_argument(graph, inner);
      if (x != ValueId::kNone && are(factors(graph, id, {x, part}, 3), {x, part}, 0.5)) return x;
      if (by_tanh) break;
    }
  }
  return ValueId::kNone;
}

int recognize_gelu(Graph& graph, PassContext& context) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    if (!graph.node(id).is("Mul") && !graph.node(id).is("Div")) continue;
    bool by_tanh = false;
    const ValueId x = gelu_argument(graph, graph.node(id).out[0], by_tanh);
    if (x == ValueId::kNone) continue;
    if (!context.may_change(graph, id)) break;
    Node gelu;
    gelu.op = "Gelu";
    gelu.in = {x};
    if (by_tanh) gelu.attrs["approximate"] = std::string("tanh");
    replace_node(graph, id, std::move(gelu));
    ++count;
  }
  return count;
}

// --- Swish, HardSwish, Mish

// max(0, min(6, x + 3))
bool is_clipped(const Graph& graph, ValueId id, ValueId x) {
  const Node* clip = made_by(graph, id, "Clip");
  return clip != nullptr && clip->in.size() == 3 && is_number(graph, clip->in[1], 0) &&
         is_number(graph, clip->in[2], 6) && plus_number(graph, clip->in[0], 3) == x;
}

bool is_hard_sigmoid(const Graph& graph, ValueId id, ValueId x) {
  const Node* node = made_by(graph, id, "HardSigmoid");
  return node != nullptr && node->in[0] == x && std::fabs(node->attr("alpha", 0.2f) - 1.0f / 6) < 1e-4f &&
         std::fabs(node->attr("beta", 0.5f) - 0.5f) < 1e-4f;
}

// log(1 + e^x)
bool is_softplus(const Graph& graph, ValueId id, ValueId x) {
  if (const Node* node = made_by(graph, id, "Softplus")) return node->in[0] == x;
  const Node* log = made_by(graph, id, "Log");
  const Node* exp = log == nullptr ? nullptr : made_by(graph, plus_number(graph, log->in[0], 1), "Exp");
  return exp != nullptr && exp->in[0] == x;
}

struct Activation {
  const char* op = nullptr;
  ValueId x = ValueId::kNone;
};

Activation match(const Graph& graph, ValueId id) {
  const Factors all = factors(graph, id, {}, 2);
  for (const ValueId gate : all.values) {
    for (const ValueId x : all.values) {
      if (x == gate) continue;
      const Factors two = factors(graph, id, {x, gate}, 2);
      const auto product = [&](double factor) { return are(two, {x, gate}, factor); };
      if (const Node* s = made_by(graph, gate, "Sigmoid"); s != nullptr && s->in[0] == x && product(1))
        return {"Swish", x};
      if (is_hard_sigmoid(graph, gate, x) && product(1)) return {"HardSwish", x};
      if (is_clipped(graph, gate, x) && product(1.0 / 6)) return {"HardSwish", x};
      if (const Node* t = made_by(graph, gate, "Tanh");
          t != nullptr && is_softplus(graph, t->in[0], x) && product(1))
        return {"Mish", x};
    }
  }
  // x may be a product itself, and was taken apart: x * sigmoid(x) with x = a * b.
  const Node* mul = made_by(graph, id, "Mul");
  if (mul == nullptr) return {};
  for (const ValueId x : mul->in) {
    const ValueId gate = other_operand(*mul, x);
    if (const Node* s = made_by(graph, gate, "Sigmoid"); s != nullptr && s->in[0] == x) return {"Swish", x};
    if (is_hard_sigmoid(graph, gate, x)) return {"HardSwish", x};
    if (const Node* t = made_by(graph, gate, "Tanh"); t != nullptr && is_softplus(graph, t->in[0], x))
      return {"Mish", x};
  }
  return {};
}

int recognize_activations(Graph& graph, PassContext& context) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    if (!graph.node(id).is("Mul") && !graph.node(id).is("Div")) continue;
    const Activation found = match(graph, graph.node(id).out[0]);
    if (found.op == nullptr) continue;
    if (!context.may_change(graph, id)) break;
    Node node;
    node.op = found.op;
    node.in = {found.x};
    replace_node(graph, id, std::move(node));
    ++count;
  }
  return count;
}

}  // namespace

const Pass kRecognizeGelu = {"recognize_gelu",
                             "make one Gelu of the nodes that spell it out with Erf or Tanh", recognize_gelu};
const Pass kRecognizeActivations = {"recognize_activations",
                                    "make one Swish, HardSwish or Mish of the nodes that spell it out",
                                    recognize_activations};

}  // namespace pare
