#include "graphsurgeon/inspect.h"

#include <memory>
#include <set>
#include <variant>

#include "engine/base/error.h"
#include "engine/ir/graph.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/onnx/header.h"
#include "graphsurgeon/onnx/read.h"
#include "graphsurgeon/open_checkpoint.h"

namespace pare {
namespace {

ValueSummary summary_of(const Value& value) { return {value.name, value.dtype, value.shape}; }

std::vector<ValueSummary> summaries(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<ValueSummary> list;
  for (const ValueId id : ids)
    if (id != ValueId::kNone) list.push_back(summary_of(graph.value(id)));
  return list;
}

class Counter {
 public:
  explicit Counter(ModelSummary& summary) : summary_(summary) {}

  void graph(const Graph& graph, const std::string& scope) {
    for (std::size_t i = 0; i < graph.value_count(); ++i) constant(graph, static_cast<ValueId>(i));
    for (const NodeId id : graph.nodes()) node(graph, graph.node(id), scope);
  }

 private:
  void constant(const Graph& graph, ValueId id) {
    const Value& value = graph.value(id);
    if (!value.is_constant() || graph.users(id).empty()) return;
    // A constant that an enclosing graph holds too is in memory once, and counts once.
    if (value.constant.size() > 0 && !seen_.insert(value.constant.data()).second) return;
    summary_.weight_bytes += value.constant.bytes();
    if (is_float(value.dtype) || (is_integer(value.dtype) && bits(value.dtype) <= 8))
      summary_.parameters += value.constant.size();
  }

  void node(const Graph& graph, const Node& node, const std::string& scope) {
    ++summary_.nodes;
    ++summary_.ops[node.domain.empty() ? node.op : node.domain + "." + node.op];
    summary_.layers.push_back(
        {node.name, node.op, node.domain, scope, summaries(graph, node.in), summaries(graph, node.out)});
    for (const auto& [key, attribute] : node.attrs) {
      const auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute);
      if (body == nullptr) continue;
      ++summary_.subgraphs;
      const std::string own = node.name.empty() ? node.op : node.name;
      Counter::graph(**body, (scope.empty() ? "" : scope + "/") + own + "." + key);
    }
  }

  ModelSummary& summary_;
  std::set<const void*> seen_;
};

}  // namespace

ModelSummary inspect_model(const std::string& path) {
  const ModelKind kind = model_kind(path);
  const Graph graph = kind == ModelKind::kOnnx ? read_onnx(path, {.unread = true}) : load_model(path);
  ModelSummary summary;
  summary.format = model_kind_name(kind);
  summary.opset = graph.opset;
  if (kind == ModelKind::kOnnx) {
    const OnnxHeader header = read_onnx_header(path);
    summary.ir_version = header.ir_version;
    summary.producer = header.producer;
    summary.opsets = header.opsets;
  }
  for (const auto& [key, value] : graph.metadata)
    if (key.rfind(kOpsetKey, 0) != 0) summary.metadata[key] = value;
  summary.inputs = summaries(graph, graph.inputs);
  summary.outputs = summaries(graph, graph.outputs);
  Counter(summary).graph(graph, "");
  return summary;
}

StoredSize stored_size(const std::string& path) {
  const ModelKind kind = model_kind(path);
  if (kind == ModelKind::kCheckpoint || kind == ModelKind::kGguf) {
    const Checkpoint checkpoint = open_checkpoint(path);
    return {checkpoint.weights->bytes(), checkpoint.weights->parameters()};
  }
  const ModelSummary summary = inspect_model(path);
  return {summary.weight_bytes, summary.parameters};
}

}  // namespace pare
