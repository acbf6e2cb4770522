// Watches values while a session runs, and counts (tensor_stats.h).
//
//   Collector collector(pool);
//   collector.attach(session, {{value, "conv1_out"}, ...});
//   session.run(...) ...
//   std::vector<TensorStats> all = collector.stats();
//
// The result is the same in every bit for any batches, order of samples, threads and instruction class.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "calib/tensor_stats.h"
#include "engine/base/tensor.h"
#include "engine/base/thread_pool.h"
#include "engine/ir/subgraph.h"

namespace pare {

class Session;

struct WatchedValue {
  ValueId id = ValueId::kNone;
  std::string name;        // what the statistics call it: Value::origin or Value::name
  int channel_axis = -1;   // of the value as it lies in memory; -1: no maxima a channel
  SubgraphPath path = {};  // where the value stands: all iterations count, a branch never taken is unseen
  bool channel_histograms = false;  // a histogram for each channel as well
};

class Collector {
 public:
  explicit Collector(ThreadPool& pool);
  ~Collector();
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  // Watches these values of the session from now on, which this object must outlive. Error kUsage when a
  // name was added before, or a value is no floating-point tensor.
  void attach(Session& session, const std::vector<WatchedValue>& values);

  // Without a session: a tensor to count, and values of it. float32 at full speed; float16, bfloat16 and
  // float64 (rounded to float32) are converted first.
  int add(const std::string& name, int channel_axis = -1, bool channel_histograms = false);
  void collect(int index, const TensorView& values);

  std::vector<TensorStats> stats() const;  // sorted by name
  std::int64_t values_seen() const { return values_seen_; }
  double seconds() const { return seconds_; }  // that counting took, wall clock

  // Bytes that counting `tensors` tensors takes, with `threads` threads.
  static std::int64_t predicted_bytes(std::int64_t tensors, int threads);
  static constexpr std::int64_t kChannelBytes = 2 * kChannelBins * 8 + 128;  // a channel with its histogram

 private:
  struct Counters;
  struct Slot {
    TensorStats stats;
    int channel_axis = -1;
    bool channel_histograms = false;
  };
  void collect_floats(Slot& slot, const float* values, std::int64_t n);
  void count_channels(Slot& slot, const float* values, const Dims& dims);
  void count_channel_histograms(Slot& slot, const float* values, const Dims& dims);
  std::unique_ptr<Counters> borrow();

  ThreadPool& pool_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::unique_ptr<Counters>> idle_;  // counters of threads, all zero between calls
  std::vector<float> converted_;
  std::int64_t values_seen_ = 0;
  double seconds_ = 0;
};

}  // namespace pare
