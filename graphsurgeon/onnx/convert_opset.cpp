#include "graphsurgeon/onnx/convert_opset.h"

#include <memory>
#include <variant>

#include "engine/base/error.h"
#include "engine/ir/schema.h"
#include "graphsurgeon/onnx/expand.h"
#include "graphsurgeon/onnx/function_body.h"
#include "graphsurgeon/onnx/lower.h"
#include "graphsurgeon/onnx/raise/raise.h"
#include "graphsurgeon/passes/passes.h"

namespace pare {
namespace {

// A body may hold operators with bodies of their own; none is deeper than a few levels.
constexpr int kMaxRounds = 16;

class Converter {
 public:
  Converter(int opset, ConvertOpsetReport& report) : opset_(opset), report_(report) {}

  // One round over all nodes; true when anything was replaced.
  bool round(Graph& graph) {
    bool changed = false;
    for (const NodeId id : graph.nodes()) {
      for (auto& [key, attribute] : graph.node(id).attrs) {
        auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute);
        if (body == nullptr) continue;
        if (body->use_count() > 1) *body = std::make_shared<Graph>(**body);
        changed = round(**body) || changed;
      }
      std::string why = why_not(graph, graph.node(id), opset_);
      if (why.empty()) continue;
      replace(graph, id, why);
      changed = true;
    }
    return changed;
  }

 private:
  void replace(Graph& graph, NodeId id, std::string& why) {
    const Node node = graph.node(id);
    if (!expand_by_rule(graph, id, opset_, why)) {
      const std::shared_ptr<Graph> body = function_body(graph, node);
      if (body == nullptr || holds(*body, node.op)) refuse(graph, node, why);
      splice_body(graph, id, *body);
    }
    ++report_.replaced[node.op];
  }

  // A body that uses its own operator (of another type) may never end.
  static bool holds(const Graph& body, const std::string& op) {
    for (const NodeId id : body.nodes())
      if (body.node(id).op == op) return true;
    return false;
  }

  [[noreturn]] void refuse(const Graph& graph, const Node& node, const std::string& why) const {
    std::string hint = "No opset that pare writes holds it.";
    for (int opset = opset_ + 1; opset <= kNewestOpset; ++opset) {
      if (!why_not(graph, node, opset).empty()) continue;
      hint = fmt::format("Opset {} holds it: ask for that, or take the node out of the model.", opset);
      break;
    }
    throw make_error(ErrorCode::kUnsupported, "opset {} cannot hold node '{}' ({}): {}", opset_, node.name,
                     node.op, why)
        .at(fmt::format("node '{}' ({})", node.name, node.op))
        .hint(hint);
  }

  int opset_;
  ConvertOpsetReport& report_;
};

ConvertOpsetReport convert(Graph& graph, int opset) {
  ConvertOpsetReport report;
  report.from = graph.opset;
  report.to = opset;
  Graph changed = graph;
  Converter converter(opset, report);
  int rounds = 0;
  while (converter.round(changed)) {
    if (++rounds > kMaxRounds) fail(ErrorCode::kInternal, "the conversion to opset {} does not end", opset);
    infer_shapes(changed);
  }
  changed.drop_unused_values();
  verify(changed);
  changed.opset = opset;
  graph = std::move(changed);
  return report;
}

}  // namespace

ConvertOpsetReport convert_opset(Graph& graph, int opset) {
  if (opset < kOldestWritten || opset > kNewestOpset)
    throw make_error(ErrorCode::kUsage, "opset {} cannot be written; {} to {} can", opset, kOldestWritten,
                     kNewestOpset)
        .hint("give an opset of ai.onnx in this range");
  try {
    return convert(graph, opset);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
  }
  // What an older opset wants as an attribute is often computed from constants and known sizes.
  Graph folded = graph;
  const Pass* const passes[] = {&kFoldShapes, &kFoldConstants, &kRemoveDeadCode};
  run_passes(folded, passes, {});
  ConvertOpsetReport report = convert(folded, opset);
  report.folded = true;
  graph = std::move(folded);
  return report;
}

}  // namespace pare
