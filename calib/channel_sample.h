// A few rows of values, channels last, to try quantizers on: what a layer's input looks like across channels.
//
// Rows come from runs of one sample each, in order of samples: of every run so many positions, evenly spread
// (the middle of equal stretches). So they depend on the samples and their order, not on batches or threads.
// Rows that hold a NaN or an infinity are left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "calib/calibrate.h"
#include "datasets/dataset.h"
#include "engine/base/progress.h"
#include "engine/base/thread_pool.h"
#include "engine/ir/graph.h"

namespace pare {

struct ChannelSample {
  std::string name;
  std::int64_t channels = 0;
  std::vector<float> rows;   // [n, channels]; empty: never seen
  std::vector<double> amax;  // by channel, over every position of the runs
  std::int64_t count() const { return channels == 0 ? 0 : static_cast<std::int64_t>(rows.size()) / channels; }
};

struct ChannelSampleOptions {
  ThreadPool* pool = nullptr;   // required
  std::int64_t samples = 64;    // runs: the first so many of the data
  std::int64_t rows_a_run = 8;  // of each value
  Progress* progress = nullptr;
};

// In the order of `values`, whose channel_axis must be given (of the source's shape). Errors as calibrate().
std::vector<ChannelSample> sample_channels(const Graph& source, const std::vector<CalibratedValue>& values,
                                           Dataset& data, const ChannelSampleOptions& options);

}  // namespace pare
