#include "engine/build/precision_choice.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/build/plan/memory_plan.h"

namespace pare {
namespace {

constexpr const char* kFaster = "faster so:";

using LayerSet = std::set<const PlanLayer*>;

std::map<std::string, LayerSet> layers_by_node(const EnginePlan& plan) {
  std::map<std::string, LayerSet> map;
  for (const PlanLayer& layer : plan.layers) {
    if (layer.kind == LayerKind::kPointwise || layer.kind == LayerKind::kRows) continue;
    map[layer.name].insert(&layer);
    for (const std::string& node : layer.nodes) map[node].insert(&layer);
  }
  return map;
}

double sum_of(const LayerSet& layers) {
  double us = 0;
  for (const PlanLayer* layer : layers) us += layer->microseconds;
  return us;
}

}  // namespace

static bool is_linear(const Node& node) { return node.is("Conv") || node.is("Gemm") || node.is("MatMul"); }

int drop_quantization(Graph& graph, const std::set<std::string>& nodes) {
  int changed = 0;
  // A sum that a float layer computes on its way out.
  const auto is_residual = [&](const Node& node) {
    if (!node.is("Add")) return false;
    for (const ValueId in : node.in) {
      const NodeId from = graph.producer(in);
      if (from != NodeId::kNone && is_linear(graph.node(from)) && nodes.count(graph.node(from).name) != 0 &&
          graph.only_user(in) != NodeId::kNone)
        return true;
    }
    return false;
  };
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    if (!is_residual(node) && (nodes.count(node.name) == 0 || !is_linear(node))) continue;
    for (int slot = 0; slot < 2; ++slot) {
      const NodeId dq = graph.producer(graph.node(id).in[static_cast<std::size_t>(slot)]);
      if (dq == NodeId::kNone || !graph.node(dq).is("DequantizeLinear")) continue;
      const NodeId q = graph.producer(graph.node(dq).in[0]);
      if (q == NodeId::kNone || !graph.node(q).is("QuantizeLinear")) continue;
      const ValueId x = graph.node(q).in[0];
      if (graph.is_constant(x) || graph.value(x).dtype != graph.value(graph.node(dq).out[0]).dtype) continue;
      graph.set_input(id, slot, x);
      ++changed;
    }
  }
  return changed;
}

std::set<std::string> low_precision_nodes(const EnginePlan& plan) {
  std::set<std::string> nodes;
  for (const Realized& row : plan.realized)
    if (row.why.empty() && !row.node.empty()) nodes.insert(row.node);
  return nodes;
}

std::map<std::string, FloatIsFaster> faster_as_float(const EnginePlan& low, const EnginePlan& as_float) {
  const auto mine = layers_by_node(low), other = layers_by_node(as_float);
  // Nodes that share a layer in either plan are decided together.
  std::map<const PlanLayer*, std::set<std::string>> members;
  const std::set<std::string> nodes = low_precision_nodes(low);
  std::map<std::string, std::set<std::string>> groups;
  for (const std::string& node : nodes) {
    const auto a = mine.find(node), b = other.find(node);
    if (a == mine.end() || b == other.end()) continue;
    for (const auto* layers : {&a->second, &b->second})
      for (const PlanLayer* layer : *layers) members[layer].insert(node);
    groups[node] = {node};
  }
  for (bool grown = true; grown;) {
    grown = false;
    for (const auto& entry : members) {
      std::set<std::string> all;
      for (const std::string& node : entry.second) all.insert(groups[node].begin(), groups[node].end());
      for (const std::string& node : all)
        if (groups[node] != all) {
          groups[node] = all;
          grown = true;
        }
    }
  }
  std::map<std::string, FloatIsFaster> result;
  for (const auto& entry : groups) {
    LayerSet here, there;
    for (const std::string& node : entry.second) {
      const LayerSet &a = mine.at(node), &b = other.at(node);
      here.insert(a.begin(), a.end());
      there.insert(b.begin(), b.end());
    }
    const FloatIsFaster times{sum_of(here), sum_of(there)};
    if (times.float_us <= times.low_us) result[entry.first] = times;
  }
  return result;
}

void explain_float(EnginePlan& plan, const EnginePlan& low,
                   const std::map<std::string, FloatIsFaster>& left) {
  for (const Realized& asked : low.realized) {
    const auto found = left.find(asked.node);
    if (found == left.end()) continue;
    Realized row = asked;
    row.realized = plan.precision;
    row.why = fmt::format("{} {:.1f} us instead of {:.1f} (--precision can force it)", kFaster,
                          found->second.float_us, found->second.low_us);
    const auto old = std::find_if(plan.realized.begin(), plan.realized.end(),
                                  [&](const Realized& r) { return r.node == asked.node; });
    if (old == plan.realized.end())
      plan.realized.push_back(std::move(row));
    else
      *old = std::move(row);
  }
}

std::set<std::string> left_float(const EnginePlan& plan) {
  std::set<std::string> nodes;
  for (const Realized& row : plan.realized)
    if (row.why.rfind(kFaster, 0) == 0) nodes.insert(row.node);
  return nodes;
}

std::vector<double> measured_milliseconds(EngineBackend& backend, const std::vector<const EnginePlan*>& plans,
                                          const std::vector<Tensor>& inputs) {
  constexpr int kRounds = 3, kLaunches = 40;
  // Loading costs more than measuring: all at once where half of what is free holds them.
  std::int64_t bytes = 0;
  for (const EnginePlan* plan : plans) bytes += planned_memory(*plan).peak();
  const bool together = bytes <= backend.facts().free_bytes / 2;
  std::vector<std::unique_ptr<EngineRunner>> runners(plans.size());
  std::vector<std::vector<double>> times(plans.size());
  for (int round = 0; round < kRounds; ++round)
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (runners[i] == nullptr) {
        runners[i] = backend.load(*plans[i]);
        runners[i]->run(inputs);
      }
      const std::vector<double> ms = runners[i]->bench(kLaunches, kLaunches / 4).milliseconds;
      times[i].insert(times[i].end(), ms.begin(), ms.end());
      if (!together) runners[i].reset();
    }
  std::vector<double> medians;
  for (std::vector<double>& list : times) {
    std::sort(list.begin(), list.end());
    medians.push_back(list[list.size() / 2]);
  }
  return medians;
}

double planned_microseconds(const EnginePlan& plan) {
  double sum = 0.35 * count_kernels(plan);
  for (const PlanLayer& layer : plan.layers) sum += layer.microseconds;
  return sum;
}

}  // namespace pare
