#include "recipes/quantize/reached_layers.h"

#include <algorithm>
#include <memory>
#include <set>

#include "engine/base/error.h"
#include "engine/ir/subgraph.h"

namespace pare {
namespace {

std::string and_more(std::size_t count) {
  return count <= 1 ? std::string() : fmt::format(" and {} more", count - 1);
}

bool has_little(const ReachedLayer& layer) { return layer.tokens < layer.inputs; }

}  // namespace

std::vector<ReachedLayer> reached_layers(const Graph& graph, const quant::Placement& placement,
                                         const LayerGrams& grams, std::vector<std::string>& notes) {
  std::vector<ReachedLayer> layers;
  std::vector<std::string> never;
  std::set<std::shared_ptr<const GramPair>> seen;  // layers that multiply the same rows share one
  std::uint64_t most = 0;
  for (const quant::WeightSite& site : placement.weights) {
    const std::shared_ptr<const GramPair> pair = grams.find(site);
    const auto label = [&] { return value_label(graph, site.path, site.value); };
    if (pair == nullptr) never.push_back(label());
    if (pair == nullptr || pair->fit.groups != 1 || !seen.insert(pair).second) continue;
    layers.push_back(
        {label(), pair->fit.count + pair->held_out.count, 0, static_cast<std::uint64_t>(pair->fit.n)});
    most = std::max(most, layers.back().tokens);
  }
  std::erase_if(layers, [&](const ReachedLayer& layer) { return layer.tokens >= most; });
  for (ReachedLayer& layer : layers) layer.of = most;
  const auto rarest = std::min_element(layers.begin(), layers.end(),
                                       [](const auto& x, const auto& y) { return x.tokens < y.tokens; });
  const auto little = static_cast<std::size_t>(std::count_if(layers.begin(), layers.end(), has_little));
  if (little > 0)
    notes.push_back(fmt::format(
        "'{}'{} reached by fewer tokens than inputs it has (it: {} of {}): its codes rest on little",
        rarest->tensor, and_more(little), rarest->tokens, most));
  if (!never.empty())
    notes.push_back(fmt::format("'{}'{}: reached by no token, so the nearest codes of a searched grid",
                                never.front(), and_more(never.size())));
  return layers;
}

}  // namespace pare
