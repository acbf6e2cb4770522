// Activations that exporters write as several nodes, put together again:
//
//   x * Clip(x + 3, 0, 6) / 6     HardSwish (the division before or after the product, or a product with 1/6)
//   x * HardSigmoid(x; 1/6, 1/2)  HardSwish
//   x * Sigmoid(x)                Swish
//
// Finding changes nothing; what stands between is read by nobody else and not kept.
#include <cmath>
#include <optional>

#include "engine/build/lower/lowering.h"

namespace pare::lowering {
namespace {

bool is_number(const Graph& graph, ValueId id, float wanted) {
  if (!graph.is_constant(id)) return false;
  const Tensor& t = graph.value(id).constant;
  return t.dtype() == DType::kF32 && t.size() == 1 && t.dims().size() <= 1 &&
         std::fabs(*t.as<float>() - wanted) <= 1e-6F * std::fabs(wanted);
}

struct Found {
  std::vector<NodeId> nodes;  // in order; the last computes the activation's value
  ValueId x = ValueId::kNone;
  const char* op = "";
};

class Finder {
 public:
  Finder(const Graph& graph, const Kept& kept) : graph_(graph), kept_(kept) {}

  // The activation whose last node is `last`.
  std::optional<Found> find(NodeId last) const {
    const Node& node = graph_.node(last);
    if (node.in.size() != 2 || node.out.empty() || node.out[0] == ValueId::kNone) return std::nullopt;
    if (graph_.value(node.out[0]).dtype != DType::kF32) return std::nullopt;
    if (std::optional<ValueId> inner = divided(node)) {  // (x * Clip(x + 3)) / 6
      const NodeId product = only_for(*inner);
      if (product != NodeId::kNone && graph_.node(product).is("Mul"))
        for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
          const Node& mul = graph_.node(product);
          Found found;
          if (!clipped(mul.in[side], mul.in[1 - side], found)) continue;
          found.nodes.push_back(product);
          found.nodes.push_back(last);
          return found;
        }
    }
    if (!node.is("Mul")) return std::nullopt;
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      const ValueId x = node.in[1 - side];
      const NodeId gate = only_for(node.in[side]);
      if (gate == NodeId::kNone || graph_.node(gate).in.empty()) continue;
      const Node& g = graph_.node(gate);
      Found found;
      found.x = x;
      const bool sixth = std::fabs(g.attr("alpha", 0.2F) - 1.0F / 6) < 1e-6F && g.attr("beta", 0.5F) == 0.5F;
      if ((g.is("HardSigmoid") && sixth && g.in[0] == x) || (g.is("Sigmoid") && g.in[0] == x)) {
        found.op = g.is("Sigmoid") ? "Swish" : "HardSwish";
        found.nodes = {gate, last};
        return found;
      }
      const std::optional<ValueId> inner =
          g.in.size() == 2 ? divided(g) : std::nullopt;  // x * (Clip(x + 3) / 6)
      if (inner && clipped(*inner, x, found)) {
        found.nodes.push_back(gate);
        found.nodes.push_back(last);
        return found;
      }
    }
    return std::nullopt;
  }

 private:
  // The producer of a value that only one node reads and nobody watches.
  NodeId only_for(ValueId id) const {
    return graph_.is_constant(id) || kept_(id) || graph_.only_user(id) == NodeId::kNone ? NodeId::kNone
                                                                                        : graph_.producer(id);
  }

  std::optional<ValueId> divided(const Node& node) const {
    if (node.is("Div") && is_number(graph_, node.in[1], 6)) return node.in[0];
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}})
      if (node.is("Mul") && is_number(graph_, node.in[side], 1.0F / 6)) return node.in[1 - side];
    return std::nullopt;
  }

  // Is `value` Clip(x + 3, 0, 6)?
  bool clipped(ValueId value, ValueId x, Found& found) const {
    const NodeId clip = only_for(value);
    if (clip == NodeId::kNone) return false;
    const Node& c = graph_.node(clip);
    if (!c.is("Clip") || c.in.size() != 3 || !graph_.is_constant(c.in[1]) || !is_number(graph_, c.in[2], 6) ||
        graph_.value(c.in[1]).constant.size() != 1 || *graph_.value(c.in[1]).constant.as<float>() != 0)
      return false;
    const NodeId sum = only_for(c.in[0]);
    if (sum == NodeId::kNone || !graph_.node(sum).is("Add")) return false;
    const Node& add = graph_.node(sum);
    const bool fits = (add.in[0] == x && is_number(graph_, add.in[1], 3)) ||
                      (add.in[1] == x && is_number(graph_, add.in[0], 3));
    if (!fits) return false;
    found.x = x;
    found.op = "HardSwish";
    found.nodes = {sum, clip};
    return true;
  }

  const Graph& graph_;
  const Kept& kept_;
};

}  // namespace

void fuse_pointwise(Graph& graph, const Kept& kept) {
  for (const NodeId id : graph.nodes()) {
    if (!graph.alive(id)) continue;
    const std::optional<Found> found = Finder(graph, kept).find(id);
    if (!found) continue;
    Node node;
    node.op = found->op;
    node.name = graph.node(id).name;
    node.in = {found->x};
    const ValueId result = graph.node(id).out[0];
    Value placeholder = graph.value(result);
    placeholder.producer = NodeId::kNone;
    node.out = {graph.add_value(placeholder)};
    const NodeId made = graph.insert_before(id, std::move(node));
    for (auto it = found->nodes.rbegin(); it != found->nodes.rend(); ++it) graph.remove_node(*it);
    graph.set_output(made, 0, result);
  }
}

}  // namespace pare::lowering
