// The result of a calibration: statistics of all watched tensors, with what they were made from.
//
// Nothing in them tells batch size, threads, time or host. The file (HDF5, below) has the same bytes for the
// same statistics.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "calib/tensor_stats.h"
#include "engine/base/sha256.h"

namespace pare {

struct Statistics {
  std::string graph_hash;  // of the source graph, 64 hexadecimal digits (graphsurgeon)
  DigestSum data_hash;     // of what the model saw (datasets/dataset.h)
  std::int64_t samples = 0;
  std::vector<TensorStats> tensors;  // sorted by name, no name twice

  const TensorStats* find(const std::string& name) const;  // nullptr when there is none
  // Error kUsage naming the tensor (and the nearest name) when there is none.
  const TensorStats& at(const std::string& name) const;
  std::uint64_t nan_count() const;
  std::uint64_t inf_count() const;

  friend bool operator==(const Statistics&, const Statistics&) = default;
};

// What both parts together would have given; exact, in any order. Errors, kUsage: other graphs, other
// tensors, the same data twice.
Statistics merge(const Statistics& a, const Statistics& b);

// Error kUsage, with what to do, when the statistics were made from another graph. `file` is for the message.
void refuse_stale(const Statistics& statistics, const std::string& graph_hash, const std::string& file);
// The same for data, where a recipe says which data the statistics must come from.
void refuse_other_data(const Statistics& statistics, const DigestSum& data_hash, std::int64_t samples,
                       const std::string& file);

// HDF5, format "pare statistics" version 1 (2 when a tensor has histograms a channel), little-endian, nothing
// compressed:
//   attributes  format, version, graph_hash, data_hash, samples, bins
//   names u8 [bytes], name_ends u64 [T]     tensor t's name ends before byte name_ends[t]
//   exponent i32 [T]                        the bins' width is 2^exponent
//   range f32 [T,2]                         min, max
//   counts u64 [T,5]                        total, zeros, NaN, +inf, -inf
//   histogram u64 [T,2,4096]                positive, negative
//   channel_ends u64 [T], channel_amax f32 [C]
// and in version 2, H channels in all:
//   channel_histogram_ends u64 [T], channel_exponent i32 [H], channel_range f32 [H,2], channel_counts u64
//   [H,5], channel_histogram u64 [H,2,128]
// Written atomically. Reading happens in a child process and checks everything, sums included; what is wrong
// is Error kBadFile.
void save_statistics(const Statistics& statistics, const std::string& path);
Statistics load_statistics(const std::string& path);

}  // namespace pare
