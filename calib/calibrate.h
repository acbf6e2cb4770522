// The calibration run: all samples once through the model, all methods' statistics at the end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "calib/collector.h"
#include "calib/statistics.h"
#include "datasets/dataset.h"
#include "engine/base/progress.h"
#include "engine/build/lower/lower_cpu.h"

namespace pare {

struct CalibrateOptions {
  ThreadPool* pool = nullptr;    // required
  std::int64_t batch = 0;        // samples at once; 0: the data set's own. A model's fixed batch wins
  std::string graph_hash;        // goes into the statistics
  Progress* progress = nullptr;  // counts samples
};

struct CalibrateResult {
  Statistics statistics;
  std::int64_t batches = 0, values = 0;          // values that were counted
  double seconds = 0;                            // of everything
  double data_seconds = 0, collect_seconds = 0;  // of it: reading and hashing samples; counting
  std::int64_t predicted_rss_bytes = 0, measured_rss_bytes = 0;
  Dataset::Nonfinite data_nonfinite;
};

// Runs every sample of `data` through a session that is made for it; its graph's inputs are the data's, in
// order. Errors: those of the data set; kUsage when it is all zeros, when nothing is watched, or when a
// watched value is no float tensor; kInterrupted. Watchers that the session had are removed.
CalibrateResult calibrate(Session& session, const std::vector<WatchedValue>& values, Dataset& data,
                          const CalibrateOptions& options);

struct CalibratedValue {
  ValueId id;                       // in the source graph
  int channel_axis = -1;            // of the source's shape; -1: no maxima a channel
  SubgraphPath path = {};           // where in the source
  bool channel_histograms = false;  // a histogram for each channel of channel_axis as well
};

// Lowered for this processor so that the values can be watched, and where they are then. `keep` of the
// options is set. Error kInternal if the lowering lost one.
struct WatchableGraph {
  Lowered lowered;
  std::vector<WatchedValue> watched;  // in the order of `values`, named by value_label
};
WatchableGraph lower_to_watch(const Graph& source, const std::vector<CalibratedValue>& values);

// The same from a graph as a file has it, by lower_to_watch.
CalibrateResult calibrate(const Graph& source, const std::vector<CalibratedValue>& values, Dataset& data,
                          const CalibrateOptions& options);

// The most bytes of intermediate values that are alive at once when the graph runs with `batch` samples, by
// the graph's own order and shapes. A size that the graph does not know counts as `batch` on the first axis
// and as one elsewhere; memory that values share counts for each. A subgraph counts while its
// node runs.
std::int64_t live_activation_bytes(const Graph& graph, std::int64_t batch);

}  // namespace pare
