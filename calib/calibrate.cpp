#include "calib/calibrate.h"

#include <algorithm>
#include <chrono>

#include "datasets/state_feed.h"
#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/base/memory.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/run/session.h"

namespace pare {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::int64_t value_bytes(const Value& value, std::int64_t batch) {
  std::int64_t bits_all = std::max(bits(value.dtype), 8);
  for (std::size_t d = 0; d < value.shape.dims.size(); ++d) {
    const Dim& dim = value.shape.dims[d];
    const std::int64_t size = dim.known() ? dim.value : d == 0 ? batch : 1;
    if (__builtin_mul_overflow(bits_all, size, &bits_all)) return INT64_MAX / 16;
  }
  return bits_all / 8;
}

std::int64_t batch_bytes(const Dataset& data, std::int64_t batch) {
  std::int64_t bytes = 0;
  for (const InputSpec& input : data.inputs()) {
    std::int64_t one = bits(input.dtype) / 8;
    for (std::size_t d = 1; d < input.shape.dims.size(); ++d)
      one *= input.shape.dims[d].known() ? input.shape.dims[d].value : 1;
    bytes += one * batch;
  }
  return bytes;
}

// The axis that `axis` of the source is in memory: channels-last values are [N, ..., C].
int physical_axis(const Value& value, int axis) {
  if (axis < 1 || value.layout != Layout::kChannelsLast) return axis;
  return axis == 1 ? value.shape.rank() - 1 : axis - 1;
}

}  // namespace

std::int64_t live_activation_bytes(const Graph& graph, std::int64_t batch) {
  const std::vector<NodeId> order = graph.nodes();
  std::vector<std::size_t> last_use(graph.value_count(), 0);
  for (std::size_t i = 0; i < order.size(); ++i)
    for (const ValueId id : graph.node(order[i]).in)
      if (id != ValueId::kNone) last_use[static_cast<std::size_t>(id)] = i;
  for (const ValueId id : graph.outputs) last_use[static_cast<std::size_t>(id)] = order.size();
  std::int64_t live = 0, most = 0;
  std::vector<std::int64_t> freed(order.size() + 1, 0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const ValueId id : graph.node(order[i]).out) {
      if (id == ValueId::kNone) continue;
      const std::int64_t bytes = value_bytes(graph.value(id), batch);
      live += bytes;
      freed[std::max(i, last_use[static_cast<std::size_t>(id)])] += bytes;
    }
    std::int64_t inside = 0;  // one subgraph at a time, while this node runs
    for (const std::string& key : subgraph_attributes(graph.node(order[i])))
      inside = std::max(inside, live_activation_bytes(subgraph(graph.node(order[i]), key), batch));
    most = std::max(most, live + inside);
    live -= freed[i];
  }
  return most;
}

namespace {

CalibrateResult run_calibration(Session& session, StateFeed& feed, const std::vector<WatchedValue>& values,
                                Dataset& data, const CalibrateOptions& options) {
  const auto start = Clock::now();
  PARE_ASSERT(options.pool);
  if (values.empty())
    throw make_error(ErrorCode::kUsage, "there is nothing to calibrate: no value is to be quantized")
        .hint("look at the rules, and at `pare inspect --layers`");
  std::int64_t batch = options.batch > 0 ? options.batch : data.batch_size();
  if (data.fixed_batch() > 0) batch = data.fixed_batch();
  batch = std::min(batch, data.sample_count());

  CalibrateResult result;
  result.predicted_rss_bytes =
      peak_rss_bytes() + live_activation_bytes(session.graph(), batch) + 2 * batch_bytes(data, batch) +
      Collector::predicted_bytes(static_cast<std::int64_t>(values.size()), options.pool->threads());
  for (const WatchedValue& watched : values) {
    const Shape& shape = subgraph_at(session.graph(), watched.path).value(watched.id).shape;
    if (watched.channel_histograms && watched.channel_axis >= 0 && watched.channel_axis < shape.rank())
      result.predicted_rss_bytes +=
          std::max<std::int64_t>(0, shape.dims[static_cast<std::size_t>(watched.channel_axis)].value) *
          Collector::kChannelBytes;
  }

  Collector collector(*options.pool);
  session.clear_watchers();
  collector.attach(session, values);
  Progress& progress = options.progress ? *options.progress : no_progress();
  {
    ProgressStep step(progress, "calibrating", data.sample_count());
    for (std::int64_t begin = 0, end = 0; begin < data.sample_count(); begin = end) {
      check_cancelled();
      end = data.batch_end(begin, data.sample_count(), batch);
      const auto reading = Clock::now();
      const Batch samples = data.read(begin, end, options.pool);
      result.statistics.data_hash.add(data.hash_sum(samples, options.pool));
      result.data_seconds += seconds_since(reading);
      with_context(fmt::format("running samples {} to {}", begin, end - 1),
                   [&] { feed.run(session, samples); });
      release_freed_memory();
      ++result.batches;
      step.advance(end - begin);
    }
  }
  session.clear_watchers();
  data.refuse_all_zero();

  result.statistics.graph_hash = options.graph_hash;
  result.statistics.samples = data.sample_count();
  result.statistics.tensors = collector.stats();
  result.values = collector.values_seen();
  result.collect_seconds = collector.seconds();
  result.data_nonfinite = data.nonfinite();
  result.measured_rss_bytes = peak_rss_bytes();
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace

CalibrateResult calibrate(Session& session, const std::vector<WatchedValue>& values, Dataset& data,
                          const CalibrateOptions& options) {
  StateFeed feed(data, session.graph());
  return run_calibration(session, feed, values, data, options);
}

WatchableGraph lower_to_watch(const Graph& source, const std::vector<CalibratedValue>& values) {
  LowerOptions lower;
  for (const CalibratedValue& value : values)
    (value.path.empty() ? lower.keep : lower.keep_inside[value.path]).push_back(value.id);
  WatchableGraph result{lower_for_cpu(source, lower), {}};
  for (const CalibratedValue& value : values) {
    const std::string label = value_label(source, value.path, value.id);
    const ValueId id = result.lowered.find(value.path, value.id);
    if (id == ValueId::kNone)
      fail(ErrorCode::kInternal, "'{}' was to be watched and was lowered away", label);
    const Value& to = subgraph_at(*result.lowered.graph, value.path).value(id);
    result.watched.push_back(
        {id, label, physical_axis(to, value.channel_axis), value.path, value.channel_histograms});
  }
  return result;
}

CalibrateResult calibrate(const Graph& source, const std::vector<CalibratedValue>& values, Dataset& data,
                          const CalibrateOptions& options) {
  const WatchableGraph graph = lower_to_watch(source, values);
  SessionOptions session_options;
  session_options.pool = options.pool;
  Session session(graph.lowered.graph, session_options);
  StateFeed feed(data, source);
  return run_calibration(session, feed, graph.watched, data, options);
}

}  // namespace pare
