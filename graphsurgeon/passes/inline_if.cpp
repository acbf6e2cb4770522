#include <map>
#include <memory>
#include <variant>

#include "graphsurgeon/passes/passes.h"

namespace pare {
namespace {

std::shared_ptr<Graph> match(const Graph& graph, const Node& node) {
  if (!node.is("If") || !graph.is_constant(node.in.at(0))) return nullptr;
  const Tensor& condition = graph.value(node.in[0]).constant;
  if (condition.dtype() != DType::kBool || condition.size() != 1) return nullptr;
  const auto it = node.attrs.find(condition.to_ints()[0] != 0 ? "then_branch" : "else_branch");
  if (it == node.attrs.end()) return nullptr;
  const auto* branch = std::get_if<std::shared_ptr<Graph>>(&it->second);
  if (branch == nullptr || *branch == nullptr || (*branch)->outputs.size() != node.out.size()) return nullptr;
  return *branch;
}

class Inliner {
 public:
  Inliner(Graph& graph, NodeId id, const Graph& body)
      : graph_(graph), id_(id), body_(body), owner_(graph.node(id)) {}

  void run() {
    for (const Capture& capture : body_.captures)
      map_[capture.inner] = owner_.in.at(static_cast<std::size_t>(capture.input));
    for (std::size_t i = 0; i < body_.value_count(); ++i) {
      const auto inner = static_cast<ValueId>(i);
      const Value& value = body_.value(inner);
      if (map_.count(inner) != 0 || (!value.is_constant() && value.producer == NodeId::kNone)) continue;
      Value copy = value;
      copy.producer = NodeId::kNone;
      map_[inner] = graph_.add_value(std::move(copy));
    }
    for (const NodeId inner : body_.nodes()) {
      Node copy = body_.node(inner);
      for (ValueId& in : copy.in) in = mapped(in);
      for (ValueId& out : copy.out) out = mapped(out);
      graph_.insert_before(id_, std::move(copy));
    }
    connect();
  }

 private:
  ValueId mapped(ValueId inner) const { return inner == ValueId::kNone ? inner : map_.at(inner); }

  // The If's own outputs keep their names: an Identity each, which remove_identity takes out where it can.
  void connect() {
    const std::vector<ValueId> outs = owner_.out;
    const std::vector<ValueId> results = body_.outputs;
    std::vector<Node> copies;
    for (std::size_t i = 0; i < outs.size(); ++i) {
      if (outs[i] == ValueId::kNone) continue;
      Node identity;
      identity.op = "Identity";
      identity.in = {mapped(results[i])};
      identity.out = {outs[i]};
      copies.push_back(std::move(identity));
    }
    NodeId place = id_;
    std::vector<NodeId> where;
    const Node removed = owner_;
    // Insert behind the If, then take it out: its outputs must be free first.
    for (const ValueId out : outs)
      if (out != ValueId::kNone) graph_.set_output(id_, slot_of(removed, out), ValueId::kNone);
    for (Node& copy : copies) place = graph_.insert_after(place, std::move(copy));
    graph_.remove_node(id_);
  }

  static int slot_of(const Node& node, ValueId out) {
    for (std::size_t i = 0; i < node.out.size(); ++i)
      if (node.out[i] == out) return static_cast<int>(i);
    return 0;
  }

  Graph& graph_;
  NodeId id_;
  const Graph& body_;
  const Node owner_;  // a copy: inserting moves nodes
  std::map<ValueId, ValueId> map_;
};

int inline_if(Graph& graph, PassContext&) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    const std::shared_ptr<Graph> branch = match(graph, graph.node(id));
    if (branch == nullptr) continue;
    Inliner(graph, id, *branch).run();
    ++count;
  }
  return count;
}

}  // namespace

const Pass kInlineIf = {"inline_if", "put the branch that a constant condition takes in the place of its If",
                        inline_if};

}  // namespace pare
