#include "recipes/quantize/layer_grams.h"

#include <algorithm>
#include <set>

#include "calib/gradient_grams.h"
#include "calib/gram_geometry.h"
#include "engine/base/error.h"

namespace pare {
namespace {

// Second moments over 128 samples of a map or of 50 tokens settle every layer of the examples; the cost is a
// matrix product a position.
constexpr std::int64_t kGramSamples = 128;

void divide(Gram& gram, std::int64_t ins, const std::vector<float>& s) {
  const auto by = [&](std::int64_t group, std::int64_t column) {
    return 1.0 / static_cast<double>(s[static_cast<std::size_t>(group * ins + column % ins)]);
  };
  for (std::int64_t g = 0; g < gram.groups; ++g)
    for (std::int64_t i = 0; i < gram.n; ++i) {
      gram.totals[static_cast<std::size_t>(g * gram.n + i)] *= by(g, i);
      for (std::int64_t j = i; j < gram.n; ++j)
        gram.sums[static_cast<std::size_t>(g * Gram::triangle(gram.n) + gram.index(i, j))] *=
            by(g, i) * by(g, j);
    }
}

void subtract(Gram& gram, std::int64_t ins, const std::vector<float>& z) {
  const std::vector<double> totals = gram.totals;
  const double count = static_cast<double>(gram.count);
  for (std::int64_t g = 0; g < gram.groups; ++g) {
    const auto by = [&](std::int64_t column) {
      return static_cast<double>(z[static_cast<std::size_t>(g * ins + column % ins)]);
    };
    const auto total = [&](std::int64_t i) { return totals[static_cast<std::size_t>(g * gram.n + i)]; };
    for (std::int64_t i = 0; i < gram.n; ++i) {
      gram.totals[static_cast<std::size_t>(g * gram.n + i)] -= count * by(i);
      for (std::int64_t j = i; j < gram.n; ++j)
        gram.sums[static_cast<std::size_t>(g * Gram::triangle(gram.n) + gram.index(i, j))] +=
            count * by(i) * by(j) - by(i) * total(j) - by(j) * total(i);
    }
  }
}

}  // namespace

std::vector<GramLayer> gram_layers(const Graph& graph, const quant::Placement& placement) {
  std::vector<GramLayer> layers;
  std::set<std::pair<SubgraphPath, NodeId>> seen;
  for (const quant::WeightSite& site : placement.weights) {
    const Graph& scope = subgraph_at(graph, site.path);
    for (const Use& use : site.uses) {
      GramGeometry geometry;
      if (use.slot != 1 || !seen.insert({site.path, use.node}).second ||
          !gram_geometry(scope, scope.node(use.node), geometry))
        continue;
      const ValueId x = scope.node(use.node).in[0];
      auto layer = std::find_if(layers.begin(), layers.end(), [&](const GramLayer& other) {
        return other.target.path == site.path && other.x == x && other.geometry == geometry;
      });
      if (layer == layers.end()) {
        layers.push_back({{site.path, use.node}, x, geometry, {}, 0});
        layer = layers.end() - 1;
      }
      layer->nodes.push_back(use.node);
      layer->rows = std::max(layer->rows, scope.value(site.value).constant.size() / geometry.n());
    }
  }
  return layers;
}

GramOptions LayerGrams::options(const quant::Placement& placement, const Dataset& data) {
  GramOptions options;
  options.end = std::min(data.sample_count(), kGramSamples);
  const bool chooses = std::any_of(placement.weights.begin(), placement.weights.end(),
                                   [](const quant::WeightSite& site) { return site.method == "auto"; });
  options.held_out = !data.has_tokens() ? options.end / 4 : chooses ? options.end / 8 : 0;
  return options;
}

GramForecast LayerGrams::forecast(const Graph& graph, const quant::Placement& placement,
                                  const Dataset& data) {
  std::vector<GramTarget> targets;
  for (const GramLayer& layer : gram_layers(graph, placement)) targets.push_back(layer.target);
  return forecast_grams(graph, targets, options(placement, data));
}

LayerGrams LayerGrams::collect(const Graph& graph, const quant::Placement& placement, Dataset& data,
                               ThreadPool& pool, Progress* progress) {
  const std::vector<GramLayer> layers = gram_layers(graph, placement);
  LayerGrams result;
  if (layers.empty()) return result;
  std::vector<GramTarget> targets;
  for (const GramLayer& layer : layers) targets.push_back(layer.target);
  GramOptions options = LayerGrams::options(placement, data);
  options.pool = &pool;
  options.progress = progress;
  collect_grams(graph, targets, data, options,
                [&](std::size_t i, const std::shared_ptr<const GramPair>& pair) {
                  if (pair->fit.empty()) return;
                  for (const NodeId node : layers[i].nodes)
                    result.grams_[{layers[i].target.path, node}] = {pair, {}};
                });
  return result;
}

std::vector<NodeId> LayerGrams::gradient_layers(const Graph& graph, const quant::Placement& placement,
                                                quant::Placement* rest) {
  std::vector<NodeId> layers;
  for (const quant::WeightSite& site : placement.weights) {
    const bool plain = site.path.empty() && site.uses.size() == 1 && site.uses[0].slot == 1 &&
                       graph.node(site.uses[0].node).is("MatMul") &&
                       graph.value(site.value).constant.dims().size() == 2;
    if (plain)
      layers.push_back(site.uses[0].node);
    else if (rest != nullptr)
      rest->weights.push_back(site);
  }
  return layers;
}

LayerGrams LayerGrams::collect_gradients(const Graph& graph, const quant::Placement& placement, Dataset& data,
                                         ThreadPool& pool, Progress* progress) {
  LayerGrams result;
  quant::Placement rest;
  const std::vector<NodeId> layers = gradient_layers(graph, placement, &rest);
  if (!rest.weights.empty()) result = collect(graph, rest, data, pool, progress);
  if (layers.empty()) return result;
  GramOptions options = LayerGrams::options(placement, data);
  options.held_out = 0;
  options.pool = &pool;
  options.progress = progress;
  const auto grams = collect_gradient_grams(graph, layers, data, options);
  for (std::size_t i = 0; i < layers.size(); ++i)
    result.set({}, layers[i], {grams[i]->inputs, {}, grams[i]->outputs});
  return result;
}

void LayerGrams::apply(const Change& change, Gram& gram) {
  if (change.is_shift)
    subtract(gram, change.ins, *change.values);
  else
    divide(gram, change.ins, *change.values);
}

std::shared_ptr<const GramPair> LayerGrams::find(const SubgraphPath& path, NodeId node) const {
  const auto it = grams_.find({path, node});
  if (it == grams_.end()) return nullptr;
  if (it->second.changes.empty() && !it->second.outputs_moved) return it->second.measured;
  const auto pair = std::make_shared<GramPair>(*it->second.measured);
  if (it->second.outputs_moved) pair->outputs = {};
  for (const Change& change : it->second.changes) {
    apply(change, pair->fit);
    if (!pair->held_out.empty()) apply(change, pair->held_out);
  }
  return pair;
}

std::shared_ptr<const GramPair> LayerGrams::find(const quant::WeightSite& site) const {
  for (const Use& use : site.uses)
    if (std::shared_ptr<const GramPair> pair = find(site.path, use.node); pair != nullptr) return pair;
  return nullptr;
}

void LayerGrams::add(const Graph& whole, const SubgraphPath& path, const std::vector<NodeId>& nodes,
                     bool is_shift, const std::vector<float>& values) {
  const Graph& graph = subgraph_at(whole, path);
  const auto shared = std::make_shared<const std::vector<float>>(values);
  for (const NodeId node : nodes) {
    const auto it = grams_.find({path, node});
    if (it == grams_.end()) continue;
    GramGeometry geometry;
    const bool linear = gram_geometry(graph, graph.node(node), geometry);
    PARE_ASSERT(linear);
    it->second.changes.push_back({is_shift, geometry.ins, shared});
  }
}

void LayerGrams::scale(const Graph& graph, const quant::ScaleGroup& group, const std::vector<float>& s) {
  add(graph, group.path, group.consumers, false, s);
  for (const quant::FoldEdit& edit : group.fold.edits)
    if (const auto it = grams_.find({group.path, edit.node}); edit.weight && it != grams_.end())
      it->second.outputs_moved = true;
}

void LayerGrams::shift(const Graph& graph, const quant::ShiftGroup& group, const std::vector<float>& z) {
  add(graph, group.path, group.consumers, true, z);
}

}  // namespace pare
