#include "recipes/quantize/given_scales.h"

#include <algorithm>
#include <set>

#include "engine/base/error.h"
#include "engine/ir/subgraph.h"

namespace pare {

std::vector<std::string> unmatched_names(const TrtCache& cache, const Graph& model) {
  std::set<std::string> known;
  walk_graphs(model, [&](const SubgraphPath& path, const Graph& graph) {
    for (std::size_t i = 0; i < graph.value_count(); ++i) {
      const auto id = static_cast<ValueId>(i);
      known.insert(graph.value(id).name);
      known.insert(graph.value(id).origin);
      if (!path.empty()) known.insert(value_label(model, path, id));
    }
  });
  std::vector<std::string> names;
  for (const TrtCacheEntry& entry : cache.entries)
    if (known.count(entry.tensor) == 0) names.push_back(entry.tensor);
  std::sort(names.begin(), names.end());
  return names;
}

std::string unmatched_sentence(const std::vector<std::string>& names, std::size_t of) {
  if (names.empty()) return "";
  constexpr std::size_t kShown = 10;
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i)
    list += (i > 0 ? ", '" : "'") + names[i] + "'";
  if (names.size() > kShown) list += ", ...";
  return fmt::format("{} of {} names in the calibration cache match nothing in the model: {}", names.size(),
                     of, list);
}

void leave_unknown_float(const Graph& graph, quant::Placement& placement, const TrtCache& cache) {
  std::vector<std::size_t> unknown;
  for (std::size_t i = 0; i < placement.activations.size(); ++i) {
    const quant::ActivationSite& site = placement.activations[i];
    if (cache.find(value_label(graph, site.path, site.value)) == nullptr && !site.format.dynamic)
      unknown.push_back(i);
  }
  quant::leave_float(graph, placement, unknown, "the calibration cache has no scale for its input");
}

quant::ChosenRange given_range(const TrtCacheEntry& entry) {
  const double amax = 127.0 * static_cast<double>(entry.scale);  // 24 + 7 bits: exact
  return {-amax, amax, "calibration cache"};
}

}  // namespace pare
