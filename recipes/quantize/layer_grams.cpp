#include "recipes/quantize/layer_grams.h"

#include <algorithm>
#include <set>

#include "calib/gram_geometry.h"
#include "engine/base/error.h"

namespace pare {
namespace {

// Second moments over 128 samples of a map or of 50 tokens settle every layer of the examples; the cost is a
// matrix product a position.
constexpr std::int64_t kGramSamples = 128;

Gram scaled(const Gram& gram, std::int64_t ins, const std::vector<float>& s) {
  Gram result = gram;
  const auto by = [&](std::int64_t group, std::int64_t column) {
    return 1.0 / static_cast<double>(s[static_cast<std::size_t>(group * ins + column % ins)]);
  };
  for (std::int64_t g = 0; g < gram.groups; ++g)
    for (std::int64_t i = 0; i < gram.n; ++i) {
      result.totals[static_cast<std::size_t>(g * gram.n + i)] *= by(g, i);
      for (std::int64_t j = i; j < gram.n; ++j)
        result.sums[static_cast<std::size_t>(g * Gram::triangle(gram.n) + gram.index(i, j))] *=
            by(g, i) * by(g, j);
    }
  return result;
}

Gram shifted(const Gram& gram, std::int64_t ins, const std::vector<float>& z) {
  Gram result = gram;
  const double count = static_cast<double>(gram.count);
  for (std::int64_t g = 0; g < gram.groups; ++g) {
    const auto by = [&](std::int64_t column) {
      return static_cast<double>(z[static_cast<std::size_t>(g * ins + column % ins)]);
    };
    const auto total = [&](std::int64_t i) { return gram.totals[static_cast<std::size_t>(g * gram.n + i)]; };
    for (std::int64_t i = 0; i < gram.n; ++i) {
      result.totals[static_cast<std::size_t>(g * gram.n + i)] -= count * by(i);
      for (std::int64_t j = i; j < gram.n; ++j)
        result.sums[static_cast<std::size_t>(g * Gram::triangle(gram.n) + gram.index(i, j))] +=
            count * by(i) * by(j) - by(i) * total(j) - by(j) * total(i);
    }
  }
  return result;
}

}  // namespace

LayerGrams LayerGrams::collect(const Graph& graph, const quant::Placement& placement, Dataset& data,
                               ThreadPool& pool, Progress* progress) {
  struct Layer {
    GramTarget target;
    ValueId x;
    GramGeometry geometry;
    std::vector<NodeId> nodes;
  };
  std::vector<Layer> layers;
  std::set<std::pair<SubgraphPath, NodeId>> seen;
  for (const quant::WeightSite& site : placement.weights) {
    const Graph& scope = subgraph_at(graph, site.path);
    for (const Use& use : site.uses) {
      GramGeometry geometry;
      if (use.slot != 1 || !seen.insert({site.path, use.node}).second ||
          !gram_geometry(scope, scope.node(use.node), geometry))
        continue;
      const ValueId x = scope.node(use.node).in[0];
      const auto same = std::find_if(layers.begin(), layers.end(), [&](const Layer& layer) {
        return layer.target.path == site.path && layer.x == x && layer.geometry == geometry;
      });
      if (same != layers.end()) {
        same->nodes.push_back(use.node);
      } else {
        layers.push_back({{site.path, use.node}, x, geometry, {use.node}});
      }
    }
  }
  LayerGrams result;
  if (layers.empty()) return result;
  std::vector<GramTarget> targets;
  for (const Layer& layer : layers) targets.push_back(layer.target);
  GramOptions options;
  options.pool = &pool;
  options.progress = progress;
  options.end = std::min(data.sample_count(), kGramSamples);
  const bool chooses = std::any_of(placement.weights.begin(), placement.weights.end(),
                                   [](const quant::WeightSite& site) { return site.method == "auto"; });
  options.held_out = !data.has_tokens() ? options.end / 4 : chooses ? options.end / 8 : 0;
  collect_grams(graph, targets, data, options, [&](std::size_t i, const GramPair& pair) {
    if (pair.fit.empty()) return;
    const auto shared = std::make_shared<const GramPair>(pair);
    for (const NodeId node : layers[i].nodes) result.grams_[{layers[i].target.path, node}] = shared;
  });
  return result;
}

const GramPair* LayerGrams::find(const SubgraphPath& path, NodeId node) const {
  const auto it = grams_.find({path, node});
  return it == grams_.end() ? nullptr : it->second.get();
}

const GramPair* LayerGrams::find(const quant::WeightSite& site) const {
  for (const Use& use : site.uses)
    if (const GramPair* pair = find(site.path, use.node); pair != nullptr) return pair;
  return nullptr;
}

// changed(gram, ins) for every matrix of the nodes; nodes that shared one share the new one.
template <class Change>
void LayerGrams::change(const Graph& whole, const SubgraphPath& path, const std::vector<NodeId>& nodes,
                        const Change& changed) {
  const Graph& graph = subgraph_at(whole, path);
  std::map<const GramPair*, std::shared_ptr<const GramPair>> done;
  for (const NodeId node : nodes) {
    const auto it = grams_.find({path, node});
    if (it == grams_.end()) continue;
    GramGeometry geometry;
    const bool linear = gram_geometry(graph, graph.node(node), geometry);
    PARE_ASSERT(linear);
    std::shared_ptr<const GramPair>& fresh = done[it->second.get()];
    if (fresh == nullptr) {
      GramPair pair{changed(it->second->fit, geometry.ins), {}};
      if (!it->second->held_out.empty()) pair.held_out = changed(it->second->held_out, geometry.ins);
      fresh = std::make_shared<const GramPair>(std::move(pair));
    }
    it->second = fresh;
  }
}

void LayerGrams::scale(const Graph& graph, const quant::ScaleGroup& group, const std::vector<float>& s) {
  change(graph, group.path, group.consumers,
         [&](const Gram& gram, std::int64_t ins) { return scaled(gram, ins, s); });
}

void LayerGrams::shift(const Graph& graph, const quant::ShiftGroup& group, const std::vector<float>& z) {
  change(graph, group.path, group.consumers,
         [&](const Gram& gram, std::int64_t ins) { return shifted(gram, ins, z); });
}

}  // namespace pare
