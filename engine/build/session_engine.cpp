#include "engine/build/session_engine.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/build/plan/make_plan.h"
#include "engine/build/plan/memory_plan.h"
#include "engine/ir/schema.h"
#include "engine/ir/subgraph.h"

namespace pare {
namespace {

constexpr std::size_t kMostReady = 8;  // graphs and shapes that stay on the device

// "" when the device can take every node as float32.
std::string why_not(const Graph& graph) {
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    if (has_subgraph(node)) return fmt::format("{} '{}' has a subgraph", node.op, node.name);
    if (node.domain == "pare" && node.op.rfind('Q', 0) == 0)
      return fmt::format("{} '{}' is an integer kernel of the CPU", node.op, node.name);
  }
  for (const auto* list : {&graph.inputs, &graph.outputs})
    for (const ValueId id : *list)
      if (graph.value(id).kind != ValueKind::kTensor || graph.value(id).dtype == DType::kString)
        return fmt::format("'{}' is no tensor of numbers", graph.value(id).name);
  return "";
}

}  // namespace

EngineSessions::Ready& EngineSessions::ready(const std::shared_ptr<const Graph>& graph,
                                             const std::vector<Tensor>& inputs,
                                             const std::vector<ValueId>& watched) {
  std::vector<Dims> dims;
  for (const Tensor& t : inputs) dims.push_back(t.dims());
  for (auto it = ready_.begin(); it != ready_.end(); ++it)
    if (it->graph == graph && it->watched == watched && it->dims == dims) {
      ready_.splice(ready_.begin(), ready_, it);
      return ready_.front();
    }
  Ready made;
  made.graph = graph;
  made.watched = watched;
  made.dims = dims;
  Graph copy = *graph;
  for (std::size_t i = 0; i < copy.inputs.size(); ++i) copy.value(copy.inputs[i]).shape = Shape(dims[i]);
  for (std::size_t i = 0; i < copy.value_count(); ++i) {
    Value& value = copy.value(static_cast<ValueId>(i));
    if (!value.is_constant() && value.producer != NodeId::kNone) value.shape = Shape();
  }
  infer_shapes(copy);
  copy.outputs.clear();
  for (const auto* list : {&graph->outputs, &watched})
    for (const ValueId id : *list)
      if (!graph->is_constant(id) && !graph->is_input(id) &&
          std::find(copy.outputs.begin(), copy.outputs.end(), id) == copy.outputs.end())
        copy.outputs.push_back(id);
  made.outputs = copy.outputs;
  PlanOptions options;
  options.precision = DType::kF32;
  options.fold_norms = false;
  options.integer = false;
  EnginePlan plan = plan_lowered(std::move(copy), options);
  backend_.adopt(plan, {});
  plan_memory(plan);
  EngineRunner* like = nullptr;
  for (const Ready& other : ready_)
    if (other.graph == graph) like = other.runner.get();
  check_fits(plan, dims.empty() || dims[0].empty() ? 1 : dims[0][0], backend_.facts().free_bytes,
             like != nullptr);
  made.runner = backend_.load(plan, like);
  if (ready_.size() >= kMostReady) ready_.pop_back();
  ready_.push_front(std::move(made));
  return ready_.front();
}

bool EngineSessions::run(const std::shared_ptr<const Graph>& graph, const std::vector<Tensor>& inputs,
                         const std::vector<ValueId>& watched, Results& results) {
  if (std::find(refused_.begin(), refused_.end(), graph.get()) != refused_.end()) return false;
  const auto refuse = [&](const std::string& why) {
    refused_.push_back(graph.get());
    declined_.push_back(why);
    return false;
  };
  const std::string why = why_not(*graph);
  if (!why.empty()) return refuse(why);
  Ready* r = nullptr;
  try {
    r = &ready(graph, inputs, watched);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    return refuse(error.what());
  }
  const std::vector<Tensor> values = r->runner->run(inputs);
  ++runs_;
  const auto find = [&](ValueId id) {
    if (graph->is_constant(id)) return graph->value(id).constant;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (graph->inputs[i] == id) return inputs[i];
    const auto at = std::find(r->outputs.begin(), r->outputs.end(), id);
    PARE_ASSERT(at != r->outputs.end());
    return values[static_cast<std::size_t>(at - r->outputs.begin())];
  };
  for (const ValueId id : graph->outputs) results.outputs.push_back(find(id));
  for (const ValueId id : watched) results.watched.push_back(find(id));
  return true;
}

}  // namespace pare
