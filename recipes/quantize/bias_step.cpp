#include "recipes/quantize/bias_step.h"

#include <algorithm>
#include <map>

#include "calib/channel_moments.h"
#include "calib/collector.h"
#include "datasets/state_feed.h"
#include "engine/base/error.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/run/session.h"
#include "quant/bias_correction.h"

namespace pare {
namespace {

// Moments need far fewer samples than extremes: means over 128 samples of a map are good to a percent.
constexpr std::int64_t kMomentSamples = 128;

std::vector<ChannelMoments> moments_of(const Graph& graph, const std::vector<CalibratedValue>& values,
                                       std::vector<MomentRequest> requests, const QuantizeInput& input,
                                       std::int64_t begin, std::int64_t end) {
  const WatchableGraph watchable = lower_to_watch(graph, values);
  Session session(watchable.lowered.graph, {input.pool, true, false});
  for (std::size_t i = 0; i < values.size(); ++i) requests[i].value = watchable.watched[i];
  MomentCollector collector(*input.pool);
  collector.attach(session, requests);
  Dataset& data = *input.calibration;
  ProgressStep step(input.progress != nullptr ? *input.progress : no_progress(), "channel moments",
                    end - begin);
  StateFeed feed(data, graph);
  for (std::int64_t next = begin; begin < end; begin = next) {
    next = data.batch_end(begin, end, data.batch_size());
    feed.run(session, data.read(begin, next, input.pool));
    step.advance(next - begin);
  }
  return collector.moments();
}

// Where the second half begins: at a whole batch where the model asks for one, at a new stream where states
// run through; never at a place that depends on how many samples are read at a time.
std::int64_t middle_of(const Dataset& data, std::int64_t samples) {
  const std::int64_t middle = samples / 2, whole = data.fixed_batch();
  if (whole > 0) return (middle + whole - 1) / whole * whole;
  if (data.spec().reset.empty()) return middle;
  std::int64_t half = 0;
  while (half < middle) half = data.batch_end(half, samples, samples);
  return half;
}

// Means of one half for every target.
using Means = std::vector<quant::InputMeans>;

void add_measured(const QuantCandidate& c, const QuantizeInput& input,
                  const std::vector<quant::BiasTarget>& targets, Means& first, Means& second) {
  const QuantVariant& v = *c.variant;
  std::vector<CalibratedValue> values;
  std::vector<MomentRequest> requests;
  std::map<std::pair<std::size_t, int>, std::size_t> place;  // (activation, axis) -> request
  for (const quant::BiasTarget& target : targets) {
    const auto key = std::make_pair(target.activation, target.channel_axis);
    if (target.activation == quant::kFloatInput || place.count(key) != 0) continue;
    const TensorStats* stats = v.stats[target.activation];
    const quant::Format& format = v.placement.activations[target.activation].format;
    if (stats == nullptr || stats->amax() <= 0 || format.granularity != quant::Granularity::kTensor) continue;
    // One watcher a value: a value read along two axes keeps its first.
    const CalibratedValue value = {v.placement.activations[target.activation].value, target.channel_axis,
                                   target.path};
    if (std::any_of(values.begin(), values.end(), [&](const CalibratedValue& other) {
          return other.id == value.id && other.path == value.path;
        }))
      continue;
    place[key] = values.size();
    MomentRequest request;
    request.amax = static_cast<double>(stats->amax());
    request.scale = c.plan.activations[target.activation].scale;
    request.zero_point = c.plan.activations[target.activation].zero_point;
    request.code_dtype = v.placement.activations[target.activation].format.dtype;
    values.push_back(value);
    requests.push_back(request);
  }
  if (values.empty()) return;
  Dataset& data = *input.calibration;
  const std::int64_t samples =
      data.fixed_batch() > 0 ? data.sample_count() : std::min(data.sample_count(), kMomentSamples);
  const std::int64_t half = middle_of(data, samples);
  const std::vector<ChannelMoments> a = moments_of(v.graph, values, requests, input, 0, half);
  const std::vector<ChannelMoments> b =
      half < samples ? moments_of(v.graph, values, requests, input, half, samples) : a;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto it = place.find({targets[i].activation, targets[i].channel_axis});
    if (it == place.end()) continue;
    first[i] = {a[it->second].mean, a[it->second].mean_error, {}};
    second[i] = {b[it->second].mean, b[it->second].mean_error, {}};
  }
}

std::vector<double> column_means(const Gram& gram) {
  std::vector<double> all;
  for (std::int64_t g = 0; g < gram.groups; ++g) {
    const std::vector<double> one = gram.mean(g);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

}  // namespace

void correct_biases(QuantCandidate& c, const QuantizeInput& input) {
  PARE_ASSERT(input.calibration != nullptr);
  const QuantVariant& v = *c.variant;
  const std::vector<quant::BiasTarget> targets = quant::find_bias_targets(v.graph, v.placement);
  Means first(targets.size()), second(targets.size());
  add_measured(c, input, targets, first, second);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const bool floats =
        targets[i].activation == quant::kFloatInput || v.stats[targets[i].activation] == nullptr;
    const auto pair =
        floats ? v.grams.find(targets[i].path, targets[i].node) : std::shared_ptr<const GramPair>();
    if (pair == nullptr) continue;
    first[i].columns = column_means(pair->fit);
    second[i].columns = pair->held_out.empty() ? first[i].columns : column_means(pair->held_out);
  }
  c.biases = 0;
  c.graph = v.graph;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    std::vector<double> d = quant::mean_output_error(v.graph, c.plan, targets[i], first[i]);
    const std::vector<double> check = quant::mean_output_error(v.graph, c.plan, targets[i], second[i]);
    if (d.empty() || check.size() != d.size() || !quant::correction_holds(d, check)) continue;
    // Halves of about equal weight; the held-out quarter of a Gram matrix counts as such.
    const double share = first[i].columns.empty() ? 0.5 : 0.75;
    for (std::size_t o = 0; o < d.size(); ++o) d[o] = share * d[o] + (1 - share) * check[o];
    quant::subtract_from_bias(c.graph, targets[i], d);
    ++c.biases;
  }
}

}  // namespace pare
