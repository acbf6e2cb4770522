#include "quant/placement/share.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "engine/base/error.h"
#include "quant/placement/value_moving.h"

namespace pare::quant {
namespace {

using SiteOf = std::map<ValueId, std::size_t>;

SiteOf first_sites(const std::vector<ActivationSite>& sites) {
  SiteOf found;
  for (std::size_t i = 0; i < sites.size(); ++i) found.emplace(sites[i].value, i);
  return found;
}

bool have_one_grid(const ActivationSite& a, const ActivationSite& b) {
  return a.format.dtype == b.format.dtype && a.format.symmetric == b.format.symmetric &&
         a.format.granularity == b.format.granularity && a.unit_range == b.unit_range;
}

class Groups {
 public:
  explicit Groups(std::size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  }
  std::size_t root(std::size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(std::size_t a, std::size_t b) {
    a = root(a);
    b = root(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<std::size_t> parent_;
};

// The sites from which a value's contents came, each the nearest on its way through moving operators.
void find_sources(const Graph& graph, const SiteOf& site_of, ValueId value, std::set<ValueId>& seen,
                  std::vector<std::size_t>& sources) {
  const NodeId id = graph.producer(value);
  if (id == NodeId::kNone || !seen.insert(value).second) return;
  const Node& node = graph.node(id);
  for (const int slot : moved_inputs(graph, node)) {
    const ValueId in = node.in[static_cast<std::size_t>(slot)];
    if (in == ValueId::kNone) continue;
    const auto it = site_of.find(in);
    if (it != site_of.end())
      sources.push_back(it->second);
    else
      find_sources(graph, site_of, in, seen, sources);
  }
}

}  // namespace

int group_moved_values(const Graph& graph, std::vector<ActivationSite>& sites, int first_group) {
  const SiteOf site_of = first_sites(sites);
  Groups groups(sites.size());
  std::vector<bool> grouped(sites.size(), false);
  for (const auto& [value, i] : site_of) {
    std::set<ValueId> seen;
    std::vector<std::size_t> sources;
    find_sources(graph, site_of, value, seen, sources);
    for (const std::size_t source : sources) {
      if (!have_one_grid(sites[i], sites[source])) continue;
      groups.join(i, source);
      grouped[i] = grouped[source] = true;
    }
  }
  std::map<std::size_t, int> number;
  for (std::size_t i = 0; i < sites.size(); ++i) {
    if (!grouped[i]) continue;
    const auto [it, fresh] = number.emplace(groups.root(i), first_group);
    if (fresh) ++first_group;
    sites[i].group = it->second;
  }
  return first_group;
}

void carry_codes_on(const Graph& graph, std::vector<ActivationSite>& sites) {
  SiteOf site_of = first_sites(sites);
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    const std::vector<int> slots = moved_inputs(graph, node);
    if (slots.empty()) continue;
    const ActivationSite* source = nullptr;
    bool all = true;
    for (const int slot : slots) {
      const auto it = site_of.find(node.in[static_cast<std::size_t>(slot)]);
      if (it == site_of.end() || (source != nullptr && !have_one_grid(*source, sites[it->second]))) {
        all = false;
        break;
      }
      source = &sites[it->second];
    }
    if (!all || source == nullptr) continue;
    const ActivationSite like = *source;
    for (std::size_t o = 0; o < node.out.size(); ++o) {
      // The second output of MaxPool counts positions.
      if (node.out[o] == ValueId::kNone || site_of.count(node.out[o]) != 0 ||
          graph.value(node.out[o]).dtype != DType::kF32)
        continue;
      ActivationSite site;
      site.value = node.out[o];
      site.format = like.format;
      site.unit_range = like.unit_range;
      site.rule = fmt::format("output of {} on its input's codes", node.op);
      for (const Use& use : graph.users(site.value))
        if (!graph.node(use.node).is("QuantizeLinear")) site.uses.push_back(use);
      site.graph_output = graph.is_output(site.value);
      if (site.uses.empty() && !site.graph_output) continue;
      site_of[site.value] = sites.size();
      sites.push_back(std::move(site));
    }
  }
}

const std::vector<std::string>& fused_kinds() {
  static const std::vector<std::string> kinds = {"qkv", "gate_up"};
  return kinds;
}

void group_fused_layers(const Graph& graph, const std::vector<std::string>& kinds, Placement& placement) {
  if (kinds.empty()) return;
  // By activation: the weights of the products that read it, in graph order.
  std::map<ValueId, std::vector<std::size_t>> readers;
  std::map<std::pair<NodeId, int>, std::size_t> weight_at;
  for (std::size_t i = 0; i < placement.weights.size(); ++i)
    for (const Use& use : placement.weights[i].uses) weight_at[{use.node, use.slot}] = i;
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    if (!node.is("MatMul") && !node.is("Gemm")) continue;
    const std::optional<WeightSource> source = weight_source(graph, id, 1);
    if (!source || graph.is_constant(node.in[0])) continue;
    const auto it = weight_at.find({source->use.node, source->use.slot});
    if (it != weight_at.end()) readers[node.in[0]].push_back(it->second);
  }
  for (const auto& [value, weights] : readers) {
    const char* kind = weights.size() == 3 ? "qkv" : weights.size() == 2 ? "gate_up" : nullptr;
    if (kind == nullptr || std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) continue;
    const WeightSite& first = placement.weights[weights[0]];
    const bool alike = std::all_of(weights.begin(), weights.end(), [&](std::size_t i) {
      const WeightSite& site = placement.weights[i];
      return site.fused < 0 && site.format == first.format;
    });
    if (!alike) {
      placement.notes.push_back(fmt::format(
          "the layers that read '{}' are no {} group: their weights have different formats or are shared "
          "with other layers",
          graph.value(value).name, kind));
      continue;
    }
    FusedLayers group{kind, weights};
    for (const std::size_t i : weights) placement.weights[i].fused = static_cast<int>(placement.fused.size());
    placement.fused.push_back(std::move(group));
  }
}

}  // namespace pare::quant
