#include "recipes/blocks/block_outcome.h"

#include "engine/base/error.h"

namespace pare {
namespace {

SubgraphPath moved(const SubgraphPath& path, const GraphCopy& copy) {
  SubgraphPath result = path;
  if (!result.empty()) result[0].node = copy.twin(result[0].node);
  return result;
}

// A value or node of the main graph; those inside subgraphs keep their ids.
template <typename Id>
Id moved(const SubgraphPath& path, Id id, const GraphCopy& copy) {
  return path.empty() ? copy.twin(id) : id;
}

std::vector<Use> moved(const SubgraphPath& path, const std::vector<Use>& uses, const GraphCopy& copy) {
  std::vector<Use> result = uses;
  for (Use& use : result) use.node = moved(path, use.node, copy);
  return result;
}

// Adds the block's plan to that of the whole, in the whole's ids.
void append(const quant::Plan& plan, const GraphCopy& copy, quant::Plan& whole) {
  const std::size_t weights = whole.weights.size(), fused = whole.placement.fused.size();
  int groups = 0;
  for (const quant::ActivationSite& site : whole.placement.activations)
    groups = std::max(groups, site.group + 1);
  for (quant::ActivationSite site : plan.placement.activations) {
    site.value = moved(site.path, site.value, copy);
    site.uses = moved(site.path, site.uses, copy);
    site.path = moved(site.path, copy);
    if (site.group >= 0) site.group += groups;
    whole.placement.activations.push_back(std::move(site));
  }
  for (quant::WeightSite site : plan.placement.weights) {
    site.value = moved(site.path, site.value, copy);
    site.uses = moved(site.path, site.uses, copy);
    site.path = moved(site.path, copy);
    if (site.fused >= 0) site.fused += static_cast<int>(fused);
    whole.placement.weights.push_back(std::move(site));
  }
  for (quant::BiasSite site : plan.placement.biases) {
    site.node = moved(site.path, site.node, copy);
    site.path = moved(site.path, copy);
    whole.placement.biases.push_back(std::move(site));
  }
  for (quant::FusedLayers group : plan.placement.fused) {
    for (std::size_t& weight : group.weights) weight += weights;
    whole.placement.fused.push_back(std::move(group));
  }
  const auto add = [](const auto& from, auto& to) { to.insert(to.end(), from.begin(), from.end()); };
  add(plan.placement.skipped, whole.placement.skipped);
  add(plan.placement.notes, whole.placement.notes);
  add(plan.activations, whole.activations);
  add(plan.weights, whole.weights);
}

}  // namespace

QuantizeOutcome compacted(QuantizeOutcome outcome) {
  Graph graph;
  graph.name = outcome.source.name;
  graph.opset = outcome.source.opset;
  graph.metadata = outcome.source.metadata;
  GraphCopy copy(outcome.source, graph);
  for (const ValueId id : outcome.source.inputs) graph.inputs.push_back(copy.value(id));
  for (const NodeId id : outcome.source.nodes()) copy.node(id);
  for (const ValueId id : outcome.source.outputs) graph.outputs.push_back(copy.value(id));
  quant::Plan plan;
  append(outcome.plan, copy, plan);
  plan.placement.unmatched = outcome.plan.placement.unmatched;
  outcome.source = std::move(graph);
  outcome.plan = std::move(plan);
  outcome.quantized = quant::apply(outcome.source, outcome.plan);
  return outcome;
}

BlockAssembly::BlockAssembly(const Graph& model) {
  whole_.source.name = model.name;
  whole_.source.opset = model.opset;
  whole_.source.metadata = model.metadata;
  for (const ValueId id : model.inputs) {
    Value value = model.value(id);
    value.producer = NodeId::kNone;
    whole_.source.inputs.push_back(whole_.source.add_value(std::move(value)));
  }
}

void BlockAssembly::add(const QuantizeOutcome& block, const std::string& in, const std::string& name) {
  Graph& whole = whole_.source;
  const Graph& part = block.source;
  GraphCopy copy(part, whole);
  for (const ValueId id : part.inputs) {
    const std::string& input = part.value(id).name;
    const ValueId twin = input == in ? last_ : whole.find_value(input);
    PARE_ASSERT(twin != ValueId::kNone);
    copy.bind(id, twin);
  }
  for (const NodeId id : part.nodes()) {
    const Node& node = part.node(id);
    // What does not depend on weights (positions, masks) an earlier block has computed already.
    const ValueId there = node.out.empty() || node.out[0] == ValueId::kNone
                              ? ValueId::kNone
                              : whole.find_value(part.value(node.out[0]).name);
    if (there != ValueId::kNone && whole.producer(there) != NodeId::kNone) {
      const NodeId twin = whole.producer(there);
      const Node& known = whole.node(twin);
      bool same = known.op == node.op && known.domain == node.domain && known.in.size() == node.in.size() &&
                  known.out.size() == node.out.size();
      for (std::size_t i = 0; same && i < node.in.size(); ++i) same = copy.value(node.in[i]) == known.in[i];
      if (same) {
        copy.bind(id, twin);
        for (std::size_t i = 0; i < node.out.size(); ++i)
          if (node.out[i] != ValueId::kNone) copy.bind(node.out[i], known.out[i]);
        continue;
      }
    }
    copy.node(id);
  }
  append(block.plan, copy, whole_.plan);
  const auto extend = [](const auto& from, auto& to) { to.insert(to.end(), from.begin(), from.end()); };
  extend(block.ranges, whole_.ranges);
  extend(block.stats, whole_.stats);
  extend(block.scaled, whole_.scaled);
  extend(block.low_rank, whole_.low_rank);
  extend(block.reached, whole_.reached);
  for (const std::string& note : block.notes) whole_.notes.push_back(name + ": " + note);
  whole_.biases_corrected += block.biases_corrected;
  whole_.scoring_seconds += block.scoring_seconds;
  outputs_.clear();
  for (const ValueId id : part.outputs) outputs_.push_back(copy.twin(id));
  last_ = outputs_.at(0);
}

QuantizeOutcome BlockAssembly::finish() {
  whole_.source.outputs = outputs_;
  verify(whole_.source);
  whole_.quantized = quant::apply(whole_.source, whole_.plan);
  return std::move(whole_);
}

}  // namespace pare
