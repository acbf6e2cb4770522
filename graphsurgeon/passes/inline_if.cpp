#include <memory>
#include <variant>

#include "graphsurgeon/passes/inline_graph.h"
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
  for (std::size_t i = 0; i < node.out.size(); ++i)
    if (node.out[i] != ValueId::kNone &&
        !may_be_one((*branch)->value((*branch)->outputs[i]), graph.value(node.out[i])))
      return nullptr;
  return *branch;
}

int inline_if(Graph& graph, PassContext& context) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    const std::shared_ptr<Graph> branch = match(graph, graph.node(id));
    if (branch == nullptr) continue;
    if (!context.may_change(graph, id)) break;
    replace_by_identities(graph, id, inline_graph(graph, id, *branch, {}));
    ++count;
  }
  return count;
}

}  // namespace

const Pass kInlineIf = {"inline_if", "put the branch that a constant condition takes in the place of its If",
                        inline_if};

}  // namespace pare
