#include "graphsurgeon/families/linear_modules.h"

#include "engine/base/error.h"
#include "graphsurgeon/families/family.h"

namespace pare {
namespace {

// The constant behind Cast and Transpose; how often it is transposed.
struct Behind {
  ValueId value = ValueId::kNone;
  bool transposed = false;
};

Behind constant_behind(const Graph& graph, ValueId value) {
  Behind behind{value, false};
  while (graph.producer(behind.value) != NodeId::kNone) {
    const Node& node = graph.node(graph.producer(behind.value));
    if (node.op == "Transpose")
      behind.transposed = !behind.transposed;
    else if (node.op != "Cast")
      return {};
    behind.value = node.in[0];
  }
  if (!graph.value(behind.value).is_constant()) return {};
  return behind;
}

}  // namespace

std::vector<LinearModule> linear_modules(const Checkpoint& checkpoint) {
  Graph graph;
  return linear_modules(checkpoint, graph);
}

std::vector<LinearModule> linear_modules(const Checkpoint& checkpoint, Graph& graph) {
  BuildOptions options;
  options.views = options.dequantize = true;
  options.context = 1;  // tables of positions are not needed
  graph = build_graph(checkpoint, options);
  std::vector<LinearModule> modules;
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    if (node.op != "MatMul") continue;
    const Behind behind = constant_behind(graph, node.in[1]);
    if (behind.value == ValueId::kNone) continue;
    const Value& weight = graph.value(behind.value);
    const Dims& dims = weight.constant.dims();
    if (dims.size() != 2 || checkpoint.weights->find(weight.name) == nullptr) continue;
    LinearModule module;
    module.module = node.name;
    module.weight = weight.name;
    module.in_first = !behind.transposed;
    module.outs = dims[module.in_first ? 1 : 0];
    module.ins = dims[module.in_first ? 0 : 1];
    module.tied = weight.name != node.name + ".weight";
    module.router = module.outs <= checkpoint.config.experts ||
                    (checkpoint.config.experts > 0 && node.name.find("expert_gate") != std::string::npos);
    module.node = id;
    module.input = graph.value(node.in[0]).name;
    modules.push_back(std::move(module));
  }
  return modules;
}

}  // namespace pare
