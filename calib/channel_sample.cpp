#include "calib/channel_sample.h"

#include <algorithm>
#include <cmath>

#include "datasets/state_feed.h"
#include "engine/base/error.h"
#include "engine/base/memory.h"
#include "engine/run/session.h"

namespace pare {
namespace {

void add_rows(ChannelSample& sample, const TensorView& values, std::size_t axis, std::int64_t wanted) {
  if (values.dtype != DType::kF32 || axis >= values.dims.size() || values.size() == 0) return;
  const std::int64_t channels = values.dims[axis];
  std::int64_t inner = 1;
  for (std::size_t i = axis + 1; i < values.dims.size(); ++i) inner *= values.dims[i];
  if (sample.channels == 0) {
    sample.channels = channels;
    sample.amax.assign(static_cast<std::size_t>(channels), 0.0);
  }
  if (sample.channels != channels)
    throw make_error(ErrorCode::kUsage, "'{}' changes its number of channels", sample.name)
        .hint("leave the layer out (ignore, --exclude)");
  const std::int64_t positions = values.size() / channels, outer = positions / inner;
  const float* x = values.as<float>();
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t c = 0; c < channels; ++c) {
      float largest = 0;
      for (std::int64_t i = 0; i < inner; ++i) {
        const float v = std::fabs(x[(o * channels + c) * inner + i]);
        if (std::isfinite(v)) largest = std::max(largest, v);
      }
      double& amax = sample.amax[static_cast<std::size_t>(c)];
      amax = std::max(amax, static_cast<double>(largest));
    }
  const std::int64_t take = std::min(wanted, positions);
  for (std::int64_t k = 0; k < take; ++k) {
    const std::int64_t position = (2 * k + 1) * positions / (2 * take);
    const float* row = x + position / inner * channels * inner + position % inner;
    const std::size_t before = sample.rows.size();
    bool finite = true;
    for (std::int64_t c = 0; c < channels; ++c) {
      sample.rows.push_back(row[c * inner]);
      finite = finite && std::isfinite(row[c * inner]);
    }
    if (!finite) sample.rows.resize(before);
  }
}

}  // namespace

std::vector<ChannelSample> sample_channels(const Graph& source, const std::vector<CalibratedValue>& values,
                                           Dataset& data, const ChannelSampleOptions& options) {
  PARE_ASSERT(options.pool != nullptr);
  const WatchableGraph watchable = lower_to_watch(source, values);
  Session session(watchable.lowered.graph, {options.pool, true, false});
  std::vector<ChannelSample> samples(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const WatchedValue& watched = watchable.watched[i];
    PARE_ASSERT(watched.channel_axis >= 0);
    samples[i].name = watched.name;
    session.watch(watched.path, watched.id, [&, i](ValueId, const TensorView& view) {
      add_rows(samples[i], view, static_cast<std::size_t>(watchable.watched[i].channel_axis),
               options.rows_a_run);
    });
  }
  const std::int64_t count = std::min(data.sample_count(), options.samples);
  ProgressStep step(options.progress != nullptr ? *options.progress : no_progress(), "channel samples",
                    count);
  StateFeed feed(data, source);
  for (std::int64_t begin = 0, end = 0; begin < count; begin = end) {
    end = data.batch_end(begin, count, 1);
    feed.run(session, data.read(begin, end, options.pool));
    release_freed_memory();
    step.advance(end - begin);
  }
  return samples;
}

}  // namespace pare
