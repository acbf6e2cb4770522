#include "recipes/quantize/variant.h"

#include <algorithm>

#include "calib/calibrate.h"
#include "engine/base/error.h"
#include "quant/placement/activation.h"
#include "recipes/quantize/given_scales.h"
#include "recipes/quantize/group_stats.h"

namespace pare {
namespace {

bool by_name(const TensorStats& s, const std::string& n) { return s.name < n; }

// A branch that the data never took, or an expert that no token reached, has no ranges: it cannot be
// quantized statically.
void leave_unseen_float(const Graph& graph, quant::Placement& placement,
                        const std::vector<TensorStats>& stats) {
  std::vector<std::size_t> unseen;
  for (std::size_t i = 0; i < placement.activations.size(); ++i) {
    const quant::ActivationSite& site = placement.activations[i];
    const TensorStats* s = find_stats(stats, value_label(graph, site.path, site.value));
    if (s != nullptr && !s->seen()) unseen.push_back(i);
  }
  quant::leave_float(graph, placement, unseen,
                     "no value of the calibration data reached it (a branch never taken, an expert without "
                     "tokens), so there "
                     "is no range: it stays float");
}

CalibratedValue watched(const Graph& graph, const quant::ActivationSite& site) {
  const bool by_channel = site.format.granularity == quant::Granularity::kChannel;
  const int axis = by_channel ? quant::activation_axis(subgraph_at(graph, site.path), site) : -1;
  return {site.value, axis, site.path, by_channel};
}

// Codes that were chosen together with a low-rank product take the place of those of the residual alone.
void take_low_rank(QuantVariant& v, const LowRankResult& low_rank, ThreadPool& pool) {
  for (const LowRankResult::Codes& codes : low_rank.codes) {
    const std::size_t i = codes.weight;
    const quant::WeightSite& site = v.placement.weights[i];
    const Tensor& weight = subgraph_at(v.graph, site.path).value(site.value).constant;
    v.weights[i] =
        quant::weight_plan(site, weight.dims(), codes.rows, codes.solved.grid, codes.solved.codes, pool);
    v.weights[i].nearest = false;
    v.weights[i].record = codes.solved.record;
    v.weights[i].record.method = "low_rank, " + v.weights[i].record.method;
  }
  v.low_rank = low_rank.layers;
  v.notes.insert(v.notes.end(), low_rank.notes.begin(), low_rank.notes.end());
}

}  // namespace

const TensorStats* find_stats(const std::vector<TensorStats>& stats, const std::string& name) {
  const auto it = std::lower_bound(stats.begin(), stats.end(), name, by_name);
  return it != stats.end() && it->name == name ? &*it : nullptr;
}

quant::Placement VariantMaker::place(const Graph& graph, const std::vector<TensorStats>& stats) const {
  quant::Placement placement = quant::place(graph, choices_.spec);
  if (in_.given == nullptr)
    leave_unseen_float(graph, placement, stats);
  else
    leave_unknown_float(graph, placement, *in_.given);
  return placement;
}

// Values that a transform changed or made: what earlier statistics say of their names is not true any more.
void VariantMaker::collect_changed(QuantVariant& v) const {
  std::vector<CalibratedValue> values;
  for (const quant::ActivationSite& site : v.placement.activations)
    if (quant::needs_statistics(site.format) &&
        std::find(v.changed.begin(), v.changed.end(), ValuePlace{site.path, site.value}) != v.changed.end())
      values.push_back(watched(v.graph, site));
  if (values.empty()) return;
  PARE_ASSERT(in_.calibration != nullptr);
  CalibrateOptions options;
  options.pool = in_.pool;
  options.progress = in_.progress;
  auto all = std::make_shared<std::vector<TensorStats>>(*v.statistics);
  for (TensorStats& fresh : calibrate(v.graph, values, *in_.calibration, options).statistics.tensors) {
    const auto it = std::lower_bound(all->begin(), all->end(), fresh.name, by_name);
    if (it != all->end() && it->name == fresh.name) {
      *it = std::move(fresh);
    } else {
      all->insert(it, std::move(fresh));
    }
  }
  v.statistics = std::move(all);
}

void VariantMaker::find_stats(QuantVariant& v) const {
  for (const quant::ActivationSite& site : v.placement.activations) {
    if (in_.given != nullptr || !quant::needs_statistics(site.format)) {
      v.stats.push_back(nullptr);
      continue;
    }
    const std::string name = value_label(v.graph, site.path, site.value);
    const TensorStats* s = pare::find_stats(*v.statistics, name);
    if (s == nullptr || !s->seen())
      throw make_error(ErrorCode::kUsage, "there are no statistics of '{}'", name)
          .hint("calibrate this model again, with the same recipe");
    v.stats.push_back(s);
  }
}

QuantVariant VariantMaker::make(Source source, bool searched) const {
  QuantVariant v;
  v.graph = std::move(source.graph);
  v.placement = std::move(source.placement);
  v.statistics = std::move(source.statistics);
  v.grams = std::move(source.grams);
  v.changed = std::move(source.changed);
  SolveOptions options = choices_.solve;
  options.searched = searched;
  Progress& progress = in_.progress != nullptr ? *in_.progress : no_progress();
  v.weights = solve_weights(v.graph, v.placement, v.grams, options, in_.journal, progress, *in_.pool);
  if (source.low_rank != nullptr) take_low_rank(v, *source.low_rank, *in_.pool);
  collect_changed(v);
  find_stats(v);
  join_group_stats(v.placement, v.stats, v.group_stats);
  v.ranges.resize(v.stats.size());
  in_.pool->parallel_for(static_cast<std::int64_t>(v.stats.size()), 1,
                         [&](std::int64_t begin, std::int64_t end) {
                           for (std::int64_t i = begin; i < end; ++i) {
                             const auto k = static_cast<std::size_t>(i);
                             if (v.stats[k] == nullptr) {
                               v.ranges[k] = {RangeChoice()};
                               continue;
                             }
                             v.ranges[k] = methods_.ranges(v.placement.activations[k], *v.stats[k]);
                           }
                         });
  return v;
}

QuantVariant VariantMaker::layer_wise(const QuantVariant& searched) const {
  QuantVariant v = searched;
  SolveOptions options = choices_.solve;
  options.searched = false;
  Progress& progress = in_.progress != nullptr ? *in_.progress : no_progress();
  v.weights = v.grams.empty()
                  ? solve_weights_in_parts(v.graph, v.placement, *in_.calibration, options, in_.journal,
                                           progress, *in_.pool)
                  : solve_weights(v.graph, v.placement, v.grams, options, in_.journal, progress, *in_.pool);
  return v;
}

quant::ActivationPlan VariantMaker::activation(const QuantVariant& v, std::size_t i,
                                               const RangeChoice& range) const {
  const quant::ActivationSite& site = v.placement.activations[i];
  if (!quant::needs_statistics(site.format)) {
    quant::ActivationPlan plan;
    plan.range.method = "dynamic";
    return plan;
  }
  if (in_.given != nullptr)
    return quant::activation_from_range(
        site.format, given_range(*in_.given->find(value_label(v.graph, site.path, site.value))));
  const quant::ChosenRange whole = {static_cast<double>(range.low), static_cast<double>(range.high),
                                    range.method};
  const TensorStats& stats = *v.stats[i];
  // A group has one scale for several tensors, which one for each channel is not.
  if (site.format.granularity != quant::Granularity::kChannel || site.unit_range || site.group >= 0)
    return quant::activation_from_range(site.format, whole);
  if (stats.channels.empty())
    throw make_error(ErrorCode::kUsage, "the statistics of '{}' have no histograms by channel", stats.name)
        .hint("calibrate again with --per-channel, or with the recipe that asks for granularity: channel");
  // 16-bit steps are far finer than a channel's bins, which cannot say what clipping would cost.
  const bool fine = bits(site.format.dtype) == 16 && range.method.rfind("mse", 0) == 0;
  const std::string method = fine ? "minmax" : range.method;
  std::vector<quant::ChosenRange> channels(stats.channels.size(), {0, 0, method});
  in_.pool->parallel_for(
      static_cast<std::int64_t>(channels.size()), 8, [&](std::int64_t begin, std::int64_t end) {
        for (auto c = static_cast<std::size_t>(begin); c < static_cast<std::size_t>(end); ++c) {
          if (stats.channels[c].finite() == 0) continue;  // a dead channel: scale 1
          const RangeChoice one = range_by_name(channel_stats(stats, c), range_target(site.format), method);
          channels[c].low = static_cast<double>(one.low);
          channels[c].high = static_cast<double>(one.high);
        }
      });
  quant::ActivationPlan plan = quant::activation_from_ranges(site.format, channels);
  plan.range.method = method;
  return plan;
}

QuantCandidate VariantMaker::candidate(const QuantVariant& v, const std::string& calibrator) const {
  QuantCandidate c;
  c.variant = &v;
  c.calibrator = calibrator;
  const bool ranged =
      std::any_of(v.stats.begin(), v.stats.end(), [](const TensorStats* s) { return s != nullptr; });
  c.label = (ranged ? calibrator : std::string("search")) + v.what;
  c.graph = v.graph;
  c.plan.placement = v.placement;
  c.plan.weights = v.weights;
  for (std::size_t i = 0; i < v.stats.size(); ++i) {
    const RangeChoice& range = methods_.pick(v.ranges[i], calibrator);
    c.ranges.push_back(range);
    c.plan.activations.push_back(activation(v, i, range));
  }
  return c;
}

}  // namespace pare
