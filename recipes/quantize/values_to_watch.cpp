#include "recipes/quantize/values_to_watch.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "engine/ir/subgraph.h"
#include "quant/placement/activation.h"
#include "quant/placement/placement.h"
#include "quant/transform/scale_group.h"
#include "recipes/quantize/scale_layers.h"

namespace pare {

std::vector<CalibratedValue> values_to_watch(const Graph& graph, const quant::Spec& spec) {
  const quant::Placement placement = quant::place(graph, spec);
  std::map<std::pair<SubgraphPath, ValueId>, int> axes;
  std::set<std::pair<SubgraphPath, ValueId>> by_channel;
  for (const quant::ActivationSite& site : placement.activations) {
    if (!quant::needs_statistics(site.format)) continue;
    const auto place = std::make_pair(site.path, site.value);
    const auto known = axes.emplace(place, -1).first;
    if (site.format.granularity != quant::Granularity::kChannel) continue;
    by_channel.insert(place);
    known->second = quant::activation_axis(subgraph_at(graph, site.path), site);
  }
  for (const quant::ScaleGroup& group : quant::find_scale_groups(graph, true)) {
    const auto it = axes.find({group.path, group.value});
    const bool scaled =
        std::any_of(placement.weights.begin(), placement.weights.end(), [&](const auto& site) {
          return site.path == group.path && scales_channels(site.method) &&
                 std::any_of(site.uses.begin(), site.uses.end(), [&](const Use& use) {
                   return std::find(group.consumers.begin(), group.consumers.end(), use.node) !=
                          group.consumers.end();
                 });
        });
    if (it != axes.end() && scaled && by_channel.count(it->first) == 0) it->second = group.channel_axis;
  }
  std::vector<CalibratedValue> requests;
  for (const auto& entry : axes)
    requests.push_back(
        {entry.first.second, entry.second, entry.first.first, by_channel.count(entry.first) != 0});
  return requests;
}

std::vector<CalibratedValue> calibrated_values(const Graph& graph, const quant::Spec* spec,
                                               bool per_channel) {
  std::map<std::pair<SubgraphPath, ValueId>, CalibratedValue> known;
  const auto add = [&](const quant::Spec& one) {
    for (const CalibratedValue& request : values_to_watch(graph, one)) {
      const auto [place, fresh] = known.emplace(std::make_pair(request.path, request.id), request);
      if (fresh) continue;
      if (place->second.channel_axis < 0) place->second.channel_axis = request.channel_axis;
      place->second.channel_histograms |= request.channel_histograms;
    }
  };
  if (spec != nullptr) {
    bool attends = !spec->kv_cache.active();
    for (const NodeId id : graph.nodes()) attends = attends || graph.node(id).is("Attention");
    if (!attends)
      throw make_error(ErrorCode::kUnsupported, "the model has no Attention operator, so no keys and values")
          .at("quantize.kv_cache")
          .hint("leave kv_cache out; checkpoints of decoders have them");
    add(*spec);
  } else {
    for (const quant::Target target :
         {quant::Target::kPare, quant::Target::kTensorRT, quant::Target::kOnnxRuntime}) {
      quant::Spec all;
      all.target = target;
      add(all);
    }
    quant::Spec channels;
    channels.activations.granularity = quant::Granularity::kChannel;
    if (per_channel) add(channels);
  }
  std::vector<CalibratedValue> values;
  for (const auto& entry : known) values.push_back(entry.second);
  return values;
}

}  // namespace pare
