#include "recipes/quantize_model.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "calib/channel_moments.h"
#include "calib/collector.h"
#include "datasets/state_feed.h"
#include "engine/base/error.h"
#include "engine/build/lower_cpu.h"
#include "engine/numeric/table.h"
#include "engine/run/session.h"
#include "quant/activation.h"
#include "quant/bias_correction.h"
#include "quant/smooth.h"
#include "recipes/given_scales.h"
#include "recipes/group_stats.h"
#include "recipes/layer_journal.h"

namespace pare {
namespace {

// Moments need far fewer samples than extremes: means over 128 samples of a map are good to a percent.
constexpr std::int64_t kMomentSamples = 128;
// "mse x 1.1": layers that clip do it in the same samples, so their errors add up and a wider range than the
// best of each alone can be better for all together.
constexpr double kWidened[] = {1.1, 1.25};

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

const TensorStats* find_stats(const std::vector<TensorStats>& stats, const std::string& name) {
  const auto it = std::lower_bound(stats.begin(), stats.end(), name,
                                   [](const TensorStats& s, const std::string& n) { return s.name < n; });
  return it != stats.end() && it->name == name ? &*it : nullptr;
}

RangeTarget range_target(const quant::Format& format) {
  RangeTarget target;
  target.format = format.dtype;
  target.symmetric = format.symmetric;
  target.two_level =
      format.granularity == quant::Granularity::kBlock && format.scales == DType::kE4M3FN && !format.dynamic;
  return target;
}

bool is_smoothable(const quant::SmoothGroup& group, const quant::Placement& placement) {
  return std::any_of(
      placement.activations.begin(), placement.activations.end(), [&](const quant::ActivationSite& site) {
        if (site.format.granularity != quant::Granularity::kTensor) return false;
        return site.path.empty() && site.value == group.value && site.uses.size() == group.consumers.size();
      });
}

// One float graph with everything needed to quantize it.
struct Variant {
  Graph graph;
  quant::Placement placement;
  std::vector<quant::WeightPlan> weights;
  std::vector<const TensorStats*> stats;                        // by activation; nullptr: it needs none
  std::vector<std::shared_ptr<const TensorStats>> group_stats;  // of those that share a range
  std::vector<std::vector<RangeChoice>> ranges;                 // by activation: every method

  bool ranges_are_per_tensor(std::size_t activation) const {
    return placement.activations[activation].format.granularity == quant::Granularity::kTensor;
  }
};

// A complete choice, and how it scored.
struct Best {
  Variant* variant = nullptr;
  std::string label;
  double score = 0;
  Graph graph;  // the variant's, biases corrected or not
  quant::Plan plan;
  std::vector<RangeChoice> ranges;  // by activation
  int biases = 0;                   // corrected
};

class Flow {
 public:
  Flow(const QuantizeInput& input, const QuantizeChoices& choices) : in_(input), choices_(choices) {}

  QuantizeOutcome run() {
    PARE_ASSERT(in_.graph != nullptr && in_.pool != nullptr);
    quant::check(choices_.spec);
    if (in_.given != nullptr) check_given();
    base_ = make_variant(*in_.graph, in_.stats);
    const std::string first = choices_.calibrator == "auto" ? "mse" : choices_.calibrator;
    if (!may_score()) {
      best_ = candidate(base_, first, "");
      finish();
      return std::move(out_);
    }
    const bool improve = choices_.spec.method == "auto" && in_.calibration != nullptr;
    consider(candidate(base_, first, ""), improve);
    if (improve && smooth()) consider(candidate(smoothed_, first, " + smoothing"), improve);
    if (choices_.calibrator == "auto") {
      Variant& variant = *best_.variant;
      const std::string suffix = &variant == &smoothed_ ? " + smoothing" : "";
      Best uniform;
      for (const std::string& method : uniform_methods()) {
        if (method == first) continue;
        Best next = candidate(variant, method, suffix);
        score(next);
        if (uniform.variant == nullptr || next.score > uniform.score) uniform = std::move(next);
      }
      // Bias correction raises them all; the best of the others deserves it too.
      if (uniform.variant != nullptr) consider(std::move(uniform), improve, true);
    }
    finish();
    return std::move(out_);
  }

 private:
  void check_given() const {
    for (const quant::ActivationSite& site : quant::place(*in_.graph, choices_.spec).activations)
      if (!site.format.dynamic &&
          (!site.format.symmetric || site.format.granularity != quant::Granularity::kTensor))
        throw make_error(ErrorCode::kUsage,
                         "a calibration cache holds one symmetric scale a tensor, not what {} needs",
                         quant::to_string(site.format))
            .hint("scheme int8 or fp8");
  }

  bool may_score() const {
    return in_.given == nullptr && in_.held_out != nullptr &&
           in_.held_out_range.end > in_.held_out_range.begin && choices_.spec.activations.active() &&
           (choices_.calibrator == "auto" || choices_.spec.method == "auto");
  }

  std::vector<std::string> uniform_methods() const {
    std::vector<std::string> methods = {"minmax"};
    for (const double p : choices_.percentiles) methods.push_back(fmt::format("percentile({})", p));
    methods.push_back("entropy");
    methods.push_back("mse");
    for (const double factor : kWidened) methods.push_back(fmt::format("mse x {}", factor));
    return methods;
  }

  static RangeChoice range_by_name(const TensorStats& stats, const RangeTarget& target,
                                   const std::string& method) {
    for (const double factor : kWidened) {
      if (method != fmt::format("mse x {}", factor)) continue;
      // Not beyond what was seen: there is nothing to be gained there.
      const RangeChoice mse = range_mse(stats, target);
      const RangeChoice all = range_minmax(stats, target);
      RangeChoice wide = range_given(stats, target, std::max(static_cast<float>(mse.low * factor), all.low),
                                     std::min(static_cast<float>(mse.high * factor), all.high));
      wide.method = method;
      return wide;
    }
    return range_by_method(stats, target, method);
  }

  // A branch that the data never took has no ranges: it cannot be quantized statically.
  static void leave_unseen_float(const Graph& graph, quant::Placement& placement,
                                 const std::vector<TensorStats>& stats) {
    std::vector<std::size_t> unseen;
    for (std::size_t i = 0; i < placement.activations.size(); ++i) {
      const quant::ActivationSite& site = placement.activations[i];
      const TensorStats* s = find_stats(stats, value_label(graph, site.path, site.value));
      if (!site.path.empty() && s != nullptr && !s->seen()) unseen.push_back(i);
    }
    quant::leave_float(graph, placement, unseen,
                       "the calibration data never took its branch, so there is no range: it stays float");
  }

  Variant make_variant(const Graph& graph, const std::vector<TensorStats>& stats) {
    Variant v;
    v.graph = graph;
    v.placement = quant::place(graph, choices_.spec);
    if (in_.given == nullptr)
      leave_unseen_float(graph, v.placement, stats);
    else
      leave_unknown_float(graph, v.placement, *in_.given);
    v.weights = plan_layers(graph, v.placement, choices_.spec.method, in_.journal, progress(),
                            [&](const quant::Placement& unit) {
                              return quant::plan_weights(graph, unit, choices_.spec.method, *in_.pool);
                            });
    for (const quant::ActivationSite& site : v.placement.activations) {
      if (in_.given != nullptr || !quant::needs_statistics(site.format)) {
        v.stats.push_back(nullptr);
        continue;
      }
      const std::string name = value_label(graph, site.path, site.value);
      const TensorStats* s = find_stats(stats, name);
      if (s == nullptr || !s->seen())
        throw make_error(ErrorCode::kUsage, "there are no statistics of '{}'", name)
            .hint("calibrate this model again, with the same recipe");
      v.stats.push_back(s);
    }
    join_group_stats(v.placement, v.stats, v.group_stats);
    v.ranges.resize(v.stats.size());
    in_.pool->parallel_for(static_cast<std::int64_t>(v.stats.size()), 1,
                           [&](std::int64_t begin, std::int64_t end) {
                             for (std::int64_t i = begin; i < end; ++i) {
                               const auto k = static_cast<std::size_t>(i);
                               if (v.stats[k] != nullptr)
                                 v.ranges[k] = ranges_of(v.placement.activations[k], *v.stats[k]);
                               else
                                 v.ranges[k] = {RangeChoice()};
                             }
                           });
    return v;
  }

  std::vector<RangeChoice> ranges_of(const quant::ActivationSite& site, const TensorStats& stats) const {
    const RangeTarget target = range_target(site.format);
    if (site.unit_range) {
      RangeChoice unit = range_given(stats, target, site.format.symmetric ? -1.0f : 0.0f, 1.0f);
      unit.method = "fixed (0,1)";
      return {unit};
    }
    std::vector<RangeChoice> list;
    if (choices_.calibrator != "auto") {
      list.push_back(range_by_method(stats, target, choices_.calibrator));
      return list;
    }
    for (const std::string& method : uniform_methods()) list.push_back(range_by_name(stats, target, method));
    return list;
  }

  const RangeChoice& choose(const Variant& v, std::size_t activation, const std::string& method) const {
    const std::vector<RangeChoice>& list = v.ranges[activation];
    if (list.size() == 1) return list[0];
    const std::vector<std::string> names = uniform_methods();
    const auto it = std::find(names.begin(), names.end(), method);
    PARE_ASSERT(it != names.end());
    return list[static_cast<std::size_t>(it - names.begin())];
  }

  quant::Plan plan_for(const Variant& v, const std::vector<RangeChoice>& ranges) const {
    quant::Plan plan;
    plan.placement = v.placement;
    plan.weights = v.weights;
    for (std::size_t i = 0; i < ranges.size(); ++i) plan.activations.push_back(plan_one(v, i, ranges[i]));
    return plan;
  }

  quant::ActivationPlan plan_one(const Variant& v, std::size_t i, const RangeChoice& range) const {
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

  Best candidate(Variant& v, const std::string& method, const std::string& suffix) const {
    Best c;
    c.variant = &v;
    c.label = method + suffix;
    c.graph = v.graph;
    for (std::size_t i = 0; i < v.stats.size(); ++i) c.ranges.push_back(choose(v, i, method));
    c.plan = plan_for(v, c.ranges);
    return c;
  }

  BatchOutputs outputs_of(const Graph& graph) {
    const Stopwatch watch;
    EvaluateOptions options;
    options.pool = in_.pool;
    options.progress = &progress();
    BatchOutputs outputs = collect_outputs(graph, *in_.held_out, in_.held_out_range, options);
    out_.scoring_seconds += watch.seconds();
    return outputs;
  }

  // The float outputs of the held-out samples.
  const BatchOutputs& reference() {
    if (!reference_) reference_ = outputs_of(*in_.graph);
    return *reference_;
  }

  Progress& progress() const { return in_.progress != nullptr ? *in_.progress : no_progress(); }

  void score(Best& c) {
    const Stopwatch watch;
    // The recipe and the statistics decide what a label means.
    std::optional<double> known;
    if (in_.journal != nullptr) known = in_.journal->score(c.label);
    c.score = known ? *known : output_sqnr_db(reference(), outputs_of(quant::apply(c.graph, c.plan)));
    if (in_.journal != nullptr && !known) in_.journal->keep_score(c.label, c.score);
    out_.candidates.push_back({c.label, c.score, false, watch.seconds()});
  }

  std::vector<ChannelMoments> moments_of(const Graph& graph, const std::vector<CalibratedValue>& values,
                                         std::vector<MomentRequest> requests) {
    const WatchableGraph watchable = lower_to_watch(graph, values);
    Session session(watchable.lowered.graph, {in_.pool, true, false});
    for (std::size_t i = 0; i < values.size(); ++i) requests[i].value = watchable.watched[i];
    MomentCollector collector(*in_.pool);
    collector.attach(session, requests);
    Dataset& data = *in_.calibration;
    const std::int64_t samples =
        data.fixed_batch() > 0 ? data.sample_count() : std::min(data.sample_count(), kMomentSamples);
    ProgressStep step(progress(), "channel moments", samples);
    StateFeed feed(data, graph);
    for (std::int64_t begin = 0, end = 0; begin < samples; begin = end) {
      end = data.batch_end(begin, samples, data.batch_size());
      feed.run(session, data.read(begin, end, in_.pool));
      step.advance(end - begin);
    }
    return collector.moments();
  }

  // True when some group is worth smoothing; smoothed_ is complete then.
  bool smooth() {
    std::vector<quant::SmoothGroup> groups;
    std::vector<CalibratedValue> values;
    std::vector<MomentRequest> requests;
    for (quant::SmoothGroup& group : quant::find_smooth_groups(base_.graph)) {
      const TensorStats* s = find_stats(in_.stats, base_.graph.value(group.value).name);
      if (!is_smoothable(group, base_.placement) || s == nullptr || s->amax() <= 0 ||
          s->channel_amax.size() != static_cast<std::size_t>(group.channels))
        continue;
      values.push_back({group.value, group.channel_axis});
      MomentRequest request;
      request.amax = static_cast<double>(s->amax());
      requests.push_back(request);
      groups.push_back(std::move(group));
    }
    if (groups.empty()) return false;
    const std::vector<ChannelMoments> moments = moments_of(base_.graph, values, requests);
    Graph graph = base_.graph;
    std::vector<CalibratedValue> changed;
    const double levels = symmetric_largest(choices_.spec.activations.dtype);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const TensorStats* s = find_stats(in_.stats, graph.value(groups[i].value).name);
      quant::ChannelStats channels{{s->channel_amax.begin(), s->channel_amax.end()}, moments[i].mean_square};
      const quant::SmoothChoice choice = quant::choose_smoothing(graph, groups[i], channels, levels);
      if (choice.scales.empty() || choice.predicted_gain_db < kLeastGainDb) continue;
      quant::apply_smoothing(graph, groups[i], choice.scales);
      out_.smoothed.push_back({graph.value(groups[i].value).name, choice.strength, choice.predicted_gain_db});
      changed.push_back({groups[i].value, groups[i].channel_axis});
    }
    if (changed.empty()) return false;
    check_unchanged(graph);
    // Everything but the smoothed values is what it was.
    smoothed_stats_ = in_.stats;
    CalibrateOptions options;
    options.pool = in_.pool;
    options.progress = &progress();
    for (TensorStats& fresh : calibrate(graph, changed, *in_.calibration, options).statistics.tensors) {
      const auto it = std::lower_bound(smoothed_stats_.begin(), smoothed_stats_.end(), fresh.name,
                                       [](const TensorStats& a, const std::string& n) { return a.name < n; });
      *it = std::move(fresh);
    }
    smoothed_ = make_variant(graph, smoothed_stats_);
    return true;
  }

  // Smoothing must keep the float function. 60 dB is a relative error of 1e-3, far above float rounding and
  // far below any quantization.
  void check_unchanged(const Graph& graph) {
    const double sqnr = output_sqnr_db(reference(), outputs_of(graph));
    if (!(sqnr >= 60))
      fail(ErrorCode::kInternal, "smoothing changed the float outputs (SQNR {:.1f} dB, 60 wanted)", sqnr);
  }

  // The graph with corrected biases, for a plan whose ranges stay.
  Graph correct_bias(const Variant& v, const quant::Plan& plan, int& corrected) {
    const std::vector<quant::BiasTarget> targets = quant::find_bias_targets(v.graph, v.placement);
    std::vector<CalibratedValue> values;
    std::vector<MomentRequest> requests;
    std::map<std::pair<std::size_t, int>, std::size_t> place;  // (activation, axis) -> request
    for (const quant::BiasTarget& target : targets) {
      const auto key = std::make_pair(target.activation, target.channel_axis);
      if (place.count(key) != 0 || v.stats[target.activation] == nullptr ||
          v.stats[target.activation]->amax() <= 0 || !v.ranges_are_per_tensor(target.activation))
        continue;
      // One watcher a value: a value read along two axes keeps its first.
      const CalibratedValue value = {v.placement.activations[target.activation].value, target.channel_axis,
                                     target.path};
      if (std::any_of(values.begin(), values.end(), [&](const CalibratedValue& other) {
            return other.id == value.id && other.path == value.path;
          }))
        continue;
      place[key] = values.size();
      MomentRequest request;
      request.amax = static_cast<double>(v.stats[target.activation]->amax());
      request.scale = plan.activations[target.activation].scale;
      request.zero_point = plan.activations[target.activation].zero_point;
      request.code_dtype = v.placement.activations[target.activation].format.dtype;
      values.push_back(value);
      requests.push_back(request);
    }
    Graph graph = v.graph;
    if (values.empty()) return graph;
    const std::vector<ChannelMoments> moments = moments_of(v.graph, values, requests);
    std::vector<quant::InputMeans> means(targets.size());
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const auto it = place.find({targets[i].activation, targets[i].channel_axis});
      if (it == place.end()) continue;
      means[i] = {moments[it->second].mean, moments[it->second].mean_error};
      ++corrected;
    }
    quant::correct_biases(graph, plan, targets, means);
    return graph;
  }

  void keep_if_better(Best c) {
    if (best_.variant == nullptr || c.score > best_.score) best_ = std::move(c);
  }

  // Scores a choice (unless that was done), then the same with corrected biases; the best so far is kept.
  void consider(Best c, bool correct, bool scored = false) {
    if (!scored) score(c);
    Best corrected = c;
    keep_if_better(std::move(c));
    if (!correct) return;
    corrected.biases = 0;
    corrected.graph = correct_bias(*corrected.variant, corrected.plan, corrected.biases);
    if (corrected.biases == 0) return;
    corrected.label += " + bias correction";
    score(corrected);
    keep_if_better(std::move(corrected));
  }

  // A smoothed value is not the source model's value of that name any more: under a name of its own nobody
  // compares the two.
  void rename_smoothed(Graph& graph) const {
    for (const quant::SmoothGroup& group : quant::find_smooth_groups(base_.graph)) {
      const std::string& name = base_.graph.value(group.value).name;
      if (std::none_of(out_.smoothed.begin(), out_.smoothed.end(),
                       [&](const SmoothedValue& value) { return value.tensor == name; }))
        continue;
      std::vector<NodeId> nodes = group.between;
      nodes.push_back(group.producer);
      for (const NodeId node : nodes) {
        const ValueId out = graph.node(node).out[0];
        if (graph.is_output(out)) continue;
        graph.rename(out, graph.value(out).name + "_smoothed");
        graph.value(out).origin.clear();
      }
    }
  }

  void finish() {
    const Variant& v = *best_.variant;
    out_.plan = best_.plan;
    out_.source = best_.graph;
    out_.biases_corrected = best_.biases;
    if (&v != &smoothed_)
      out_.smoothed.clear();
    else
      rename_smoothed(out_.source);
    for (ScoredCandidate& c : out_.candidates) c.chosen = c.name == best_.label;
    out_.ranges = best_.ranges;
    for (std::size_t i = 0; i < v.stats.size(); ++i) {
      out_.stats.push_back(v.stats[i] != nullptr ? *v.stats[i] : TensorStats());
      if (v.stats[i] == nullptr)
        out_.stats.back().name =
            value_label(v.graph, v.placement.activations[i].path, v.placement.activations[i].value);
    }
    out_.quantized = quant::apply(out_.source, out_.plan);
  }

  // Less than this is within what the prediction leaves out.
  static constexpr double kLeastGainDb = 0.1;

  const QuantizeInput& in_;
  const QuantizeChoices& choices_;
  QuantizeOutcome out_;
  Variant base_, smoothed_;
  Best best_;
  std::vector<TensorStats> smoothed_stats_;
  std::optional<BatchOutputs> reference_;
};

}  // namespace

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
  if (spec.method == "auto")
    for (const quant::SmoothGroup& group : quant::find_smooth_groups(graph))
      if (is_smoothable(group, placement) && axes.count({SubgraphPath(), group.value}) != 0 &&
          by_channel.count({SubgraphPath(), group.value}) == 0)
        axes[{SubgraphPath(), group.value}] = group.channel_axis;
  std::vector<CalibratedValue> requests;
  for (const auto& entry : axes)
    requests.push_back(
        {entry.first.second, entry.second, entry.first.first, by_channel.count(entry.first) != 0});
  return requests;
}

QuantizeOutcome quantize_model(const QuantizeInput& input, const QuantizeChoices& choices) {
  return Flow(input, choices).run();
}

}  // namespace pare
