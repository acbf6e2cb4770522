#include "graphsurgeon/verbs/extract.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "engine/ir/schema.h"
#include "graphsurgeon/passes/passes.h"
#include "graphsurgeon/simplify.h"
#include "graphsurgeon/verbs/scopes.h"

namespace pare {
namespace {

std::vector<ValueId> find_all(const Graph& graph, const std::vector<std::string>& names, const char* what) {
  std::vector<ValueId> ids;
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (!seen.insert(name).second)
      throw make_error(ErrorCode::kUsage, "the {} '{}' is named twice", what, name).hint("name it once");
    ids.push_back(named_value(graph, name));
  }
  return ids;
}

// The producer computes something nobody reads instead.
void make_input(Graph& graph, ValueId id) {
  if (graph.value(id).dtype == DType::kUndefined)
    throw make_error(ErrorCode::kUnsupported, "the type of '{}' is not known, so it cannot be an input",
                     graph.value(id).name)
        .hint("name a value behind it whose type is known");
  graph.value(id).constant = Tensor();
  const NodeId producer = graph.producer(id);
  if (producer == NodeId::kNone) return;
  Value unread;
  unread.name = graph.value(id).name + "_computed";
  unread.dtype = graph.value(id).dtype;
  unread.shape = graph.value(id).shape;
  const int slot = graph.value(id).producer_slot;
  graph.set_output(producer, slot, graph.add_value(std::move(unread)));
}

// Values that the outputs need, `stop` not looked behind.
std::set<ValueId> needed(const Graph& graph, const std::set<ValueId>& stop) {
  std::set<ValueId> seen;
  std::vector<ValueId> open(graph.outputs.begin(), graph.outputs.end());
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    if (!seen.insert(id).second || stop.count(id) != 0 || graph.producer(id) == NodeId::kNone) continue;
    for (const ValueId in : graph.node(graph.producer(id)).in)
      if (in != ValueId::kNone) open.push_back(in);
  }
  return seen;
}

void sweep(Graph& graph) {
  const Pass* const list[] = {&kRemoveDeadCode};
  run_passes(graph, list, {});
  graph.drop_unused_values();
  infer_shapes(graph);
  verify(graph);
}

// Takes inputs out that are not in `needed_ids`; their names.
std::vector<std::string> drop_inputs(Graph& graph, const std::set<ValueId>& needed_ids) {
  std::vector<std::string> dropped;
  std::vector<ValueId> kept;
  for (const ValueId id : graph.inputs)
    if (needed_ids.count(id) != 0)
      kept.push_back(id);
    else
      dropped.push_back(graph.value(id).name);
  graph.inputs = std::move(kept);
  return dropped;
}

}  // namespace

ExtractReport extract(Graph& graph, const ExtractOptions& options) {
  ExtractReport report;
  report.nodes_before = count_nodes(graph);
  Graph part = graph;
  infer_shapes(part);
  const std::vector<ValueId> inputs = find_all(part, options.inputs, "input");
  const std::vector<ValueId> outputs = find_all(part, options.outputs, "output");
  const std::set<ValueId> cut(inputs.begin(), inputs.end());
  for (const ValueId id : outputs) {
    const char* what = cut.count(id) != 0 || part.is_input(id) ? "an input"
                       : part.is_constant(id)                  ? "a constant"
                                                               : nullptr;
    if (what != nullptr)
      throw make_error(ErrorCode::kUsage, "'{}' is {}: nothing would be computed", part.value(id).name, what)
          .hint("name a value that a node computes");
  }
  if (!outputs.empty()) part.outputs = outputs;
  const std::set<ValueId> wanted = needed(part, cut);
  for (const ValueId id : part.inputs)
    if (!inputs.empty() && cut.count(id) == 0 && wanted.count(id) != 0)
      throw make_error(ErrorCode::kUsage, "the outputs also need the input '{}'", part.value(id).name)
          .hint("name it as an input too, or cut nearer to the outputs");
  for (const ValueId id : inputs) {
    if (wanted.count(id) == 0) report.unused_inputs.push_back(part.value(id).name);
    if (!part.is_input(id)) make_input(part, id);
  }
  if (inputs.empty()) {
    report.dropped_inputs = drop_inputs(part, wanted);
  } else {
    for (const ValueId id : part.inputs)
      if (cut.count(id) == 0) report.dropped_inputs.push_back(part.value(id).name);
    part.inputs = inputs;
  }
  sweep(part);
  report.nodes_after = count_nodes(part);
  graph = std::move(part);
  return report;
}

PruneReport prune(Graph& graph, const PruneOptions& options) {
  PruneReport report;
  report.nodes_before = count_nodes(graph);
  Graph part = graph;
  std::set<ValueId> keep, drop;
  const auto output = [&](const std::string& name) {
    const ValueId id = named_value(part, name);
    if (part.is_output(id)) return id;
    std::string all;
    for (const ValueId out : part.outputs) all += (all.empty() ? "'" : ", '") + part.value(out).name + "'";
    throw make_error(ErrorCode::kUsage, "'{}' is not an output of the model", name)
        .hint("the outputs are " + all);
  };
  for (const std::string& name : options.keep_outputs) keep.insert(output(name));
  for (const std::string& name : options.drop_outputs) drop.insert(output(name));
  std::vector<ValueId> left;
  for (const ValueId id : part.outputs)
    if (drop.count(id) == 0 && (keep.empty() || keep.count(id) != 0))
      left.push_back(id);
    else
      report.dropped_outputs.push_back(part.value(id).name);
  if (left.empty()) throw make_error(ErrorCode::kUsage, "no output would be left").hint("keep at least one");
  part.outputs = std::move(left);
  if (!options.keep_inputs) report.dropped_inputs = drop_inputs(part, needed(part, {}));
  // An input is read by nodes that go; they must be gone before verify() looks.
  const Pass* const list[] = {&kRemoveDeadCode};
  run_passes(part, list, {});
  if (!options.keep_inputs)
    for (const std::string& name : drop_inputs(part, needed(part, {}))) report.dropped_inputs.push_back(name);
  sweep(part);
  report.nodes_after = count_nodes(part);
  graph = std::move(part);
  return report;
}

}  // namespace pare
