#include "calib/collector.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <mutex>
#include <utility>

#include "calib/bin_kernel.h"
#include "engine/base/error.h"
#include "engine/base/grain.h"
#include "engine/numeric/table.h"
#include "engine/run/session.h"

namespace pare {

namespace {

constexpr std::int64_t kGrain = 32768;  // values: fewer are not worth a second thread
constexpr std::int64_t kFew = 8192;  // fewer go straight into the histogram: emptying counter sets costs more

std::int64_t product(const Dims& dims, std::size_t begin, std::size_t end) {
  std::int64_t n = 1;
  for (std::size_t d = begin; d < end; ++d) n *= dims[d];
  return n;
}

}  // namespace

// What one thread counts during one call.
struct Collector::Counters {
  std::vector<std::uint32_t> sets = std::vector<std::uint32_t>(std::size_t{kCounterSets} * kSides);
  std::vector<std::uint16_t> list = std::vector<std::uint16_t>(kBlock + 32);
  std::vector<float> cleaned = std::vector<float>(kBlock);
  ValueCounts counts;
  int exponent = kNarrowest;  // of the sets
  std::int64_t in_sets = 0;   // 32 bits must hold it

  // Counts everything but the bins of at most kBlock values, and lists those. `widen_to` is called with the
  // exponent that the values need when it is above `exponent`, which it raises. Returns the length of the
  // list.
  template <typename WidenTo>
  std::int64_t examine(const BinKernel& kernel, const float* values, std::int64_t n,
                       const WidenTo& widen_to) {
    ValueCounts part;
    part.total = static_cast<std::uint64_t>(n);
    BlockScan s = kernel.scan(values, n, scale(), list.data());
    if (s.largest >= 0x7F800000u) {
      std::int64_t kept = 0;  // the finite values move together
      for (std::int64_t i = 0; i < n; ++i) {
        const auto code = std::bit_cast<std::uint32_t>(values[i]);
        part.nan += (code & 0x7FFFFFFFu) > 0x7F800000u;
        part.positive_inf += code == 0x7F800000u;
        part.negative_inf += code == 0xFF800000u;
        cleaned[static_cast<std::size_t>(kept)] = values[i];
        kept += (code & 0x7FFFFFFFu) < 0x7F800000u;
      }
      values = cleaned.data();
      n = kept;
      s = kept > 0 ? kernel.scan(values, kept, scale(), list.data()) : BlockScan{};
    }
    const int needed = width_exponent(std::bit_cast<float>(s.largest));
    if (needed > exponent) {
      widen_to(needed);
      s = kernel.scan(values, n, scale(), list.data());
    }
    part.min = s.min;
    part.max = s.max;
    part.zeros = static_cast<std::uint64_t>(n - s.listed);
    counts.add(part);
    return s.listed;
  }
  float scale() const { return std::ldexp(1.0f, -exponent); }

  // Adds the sets to the histogram and empties them.
  void flush(TensorStats& stats) {
    if (in_sets == 0) return;
    widen(stats, std::max(stats.exponent, exponent));
    const int steps = std::min(stats.exponent - exponent, 30);
    for (int side = 0; side < 2; ++side) {
      std::uint64_t* bins = stats.bins.data() + side * kBins;
      const std::uint32_t* from = sets.data() + side * kBins;
      for (int b = 0; b < kBins; ++b) {
        std::uint64_t count = 0;
        for (int set = 0; set < kCounterSets; ++set) count += from[b + set * kSides];
        bins[b >> steps] += count;
      }
    }
    std::fill(sets.begin(), sets.end(), 0u);
    in_sets = 0;
  }
};

Collector::Collector(ThreadPool& pool) : pool_(pool) {}
Collector::~Collector() = default;

int Collector::add(const std::string& name, int channel_axis, bool channel_histograms) {
  for (const auto& slot : slots_)
    if (slot->stats.name == name)
      throw make_error(ErrorCode::kUsage, "the tensor '{}' is watched twice", name)
          .hint("name each tensor once");
  slots_.push_back(std::make_unique<Slot>());
  slots_.back()->stats.name = name;
  slots_.back()->channel_axis = channel_axis;
  slots_.back()->channel_histograms = channel_histograms;
  return static_cast<int>(slots_.size()) - 1;
}

void Collector::attach(Session& session, const std::vector<WatchedValue>& values) {
  for (const WatchedValue& watched : values) {
    const DType type = subgraph_at(session.graph(), watched.path).value(watched.id).dtype;
    if (type != DType::kUndefined && !is_float(type))
      throw make_error(ErrorCode::kUsage, "'{}' is {}: only floating-point values are calibrated",
                       watched.name, name(type))
          .hint("leave it out: integers and shapes have no range");
    const int index = add(watched.name, watched.channel_axis, watched.channel_histograms);
    session.watch(watched.path, watched.id,
                  [this, index](ValueId, const TensorView& view) { collect(index, view); });
  }
}

void Collector::collect(int index, const TensorView& values) {
  Slot& slot = *slots_[static_cast<std::size_t>(index)];
  const std::int64_t n = values.size();
  if (n == 0) return;
  const auto start = std::chrono::steady_clock::now();
  values_seen_ += n;
  const float* floats = values.as<float>();
  if (values.dtype != DType::kF32) {
    converted_.resize(static_cast<std::size_t>(n));
    if (values.dtype == DType::kF64) {
      for (std::int64_t i = 0; i < n; ++i)
        converted_[static_cast<std::size_t>(i)] = static_cast<float>(values.as<double>()[i]);
    } else {
      const FormatInfo& format = format_info(values.dtype);
      if (!is_float(values.dtype) || !format.decode)
        throw make_error(ErrorCode::kUsage, "'{}' is {}: only floating-point values are calibrated",
                         slot.stats.name, format.name)
            .hint("leave it out: integers and shapes have no range");
      format.decode(values.data, converted_.data(), n);
    }
    floats = converted_.data();
  }
  collect_floats(slot, floats, n);
  if (slot.channel_axis >= 0) count_channels(slot, floats, values.dims);
  if (slot.channel_axis >= 0 && slot.channel_histograms) count_channel_histograms(slot, floats, values.dims);
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::unique_ptr<Collector::Counters> Collector::borrow() {
  if (idle_.empty()) return std::make_unique<Counters>();
  std::unique_ptr<Counters> counters = std::move(idle_.back());
  idle_.pop_back();
  return counters;
}

void Collector::collect_floats(Slot& slot, const float* values, std::int64_t n) {
  const BinKernel& kernel = bin_kernel(isa());
  TensorStats& stats = slot.stats;
  if (n < kFew) {
    std::unique_ptr<Counters> mine = borrow();
    mine->exponent = stats.exponent;
    for (std::int64_t i = 0; i < n; i += kBlock) {
      const std::int64_t listed = mine->examine(kernel, values + i, std::min(kBlock, n - i), [&](int needed) {
        widen(stats, needed);
        mine->exponent = needed;
      });
      count_bins(mine->list.data(), listed, stats.bins.data());
    }
    stats.add(std::exchange(mine->counts, {}));
    idle_.push_back(std::move(mine));
    return;
  }

  // Threads keep their counters from piece to piece; they are added up once, in whatever order, at the end.
  std::mutex mutex;
  std::vector<std::unique_ptr<Counters>> used;
  pool_.parallel_for(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::unique_ptr<Counters> mine;
    {
      const std::lock_guard lock(mutex);
      if (used.empty()) {
        mine = borrow();
        mine->exponent = stats.exponent;
      } else {
        mine = std::move(used.back());
        used.pop_back();
      }
    }
    for (std::int64_t i = begin; i < end; i += kBlock) {
      const auto flush = [&] {
        const std::lock_guard lock(mutex);
        mine->flush(stats);
      };
      if (mine->in_sets > std::int64_t{1} << 31) flush();
      const std::int64_t listed =
          mine->examine(kernel, values + i, std::min(kBlock, end - i), [&](int needed) {
            flush();
            mine->exponent = needed;
          });
      count_bins(mine->list.data(), listed, mine->sets.data());
      mine->in_sets += listed;
    }
    const std::lock_guard lock(mutex);
    used.push_back(std::move(mine));
  });
  for (std::unique_ptr<Counters>& counters : used) {
    counters->flush(stats);
    stats.add(std::exchange(counters->counts, {}));
    idle_.push_back(std::move(counters));
  }
}

void Collector::count_channels(Slot& slot, const float* values, const Dims& dims) {
  const auto axis = static_cast<std::size_t>(slot.channel_axis);
  if (axis >= dims.size())
    fail(ErrorCode::kInternal, "'{}' has the shape {}, but channels on axis {}", slot.stats.name,
         to_string(dims), axis);
  const std::int64_t outer = product(dims, 0, axis), channels = dims[axis],
                     inner = product(dims, axis + 1, dims.size());
  std::vector<float>& amax = slot.stats.channel_amax;
  if (amax.empty()) amax.resize(static_cast<std::size_t>(channels));
  if (static_cast<std::int64_t>(amax.size()) != channels)
    throw make_error(ErrorCode::kUsage, "'{}' has {} channels now and had {} before", slot.stats.name,
                     channels, amax.size())
        .hint("statistics of channels need one shape for all samples");
  std::mutex mutex;
  const std::int64_t row = channels * inner;
  pool_.parallel_for(outer, grain_for(kGrain, row), [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::uint32_t> largest(static_cast<std::size_t>(channels));
    channel_maxima(values + begin * row, end - begin, channels, inner, largest.data());
    const std::lock_guard lock(mutex);
    for (std::size_t c = 0; c < largest.size(); ++c)
      amax[c] = std::max(amax[c], std::bit_cast<float>(largest[c]));
  });
}

namespace {

// All values of one channel in a tensor [outer, channels, inner].
template <typename Visit>
void each_of_channel(const float* values, std::int64_t outer, std::int64_t channels, std::int64_t inner,
                     std::int64_t channel, const Visit& visit) {
  for (std::int64_t o = 0; o < outer; ++o) {
    const float* row = values + (o * channels + channel) * inner;
    for (std::int64_t i = 0; i < inner; ++i) visit(row[i]);
  }
}

void count_channel(ChannelStats& stats, const float* values, std::int64_t outer, std::int64_t channels,
                   std::int64_t inner, std::int64_t channel) {
  ValueCounts part;
  part.total = static_cast<std::uint64_t>(outer * inner);
  bool first = true;
  each_of_channel(values, outer, channels, inner, channel, [&](float x) {
    const std::uint32_t code = std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu;
    if (code >= 0x7F800000u) {
      part.nan += code > 0x7F800000u;
      part.positive_inf += code == 0x7F800000u && x > 0;
      part.negative_inf += code == 0x7F800000u && x < 0;
      return;
    }
    part.zeros += code == 0;
    part.min = first ? x : std::min(part.min, x);
    part.max = first ? x : std::max(part.max, x);
    first = false;
  });
  part.min += 0.0f;  // -0 is 0
  part.max += 0.0f;
  widen(stats, std::max(stats.exponent, width_exponent(part.amax(), kChannelBins)));
  stats.add(part);
  const float scale = std::ldexp(1.0f, -stats.exponent);
  each_of_channel(values, outer, channels, inner, channel, [&](float x) {
    const std::uint32_t code = std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu;
    if (code == 0 || code >= 0x7F800000u) return;
    ++stats.bins[static_cast<std::size_t>(static_cast<int>(std::fabs(x) * scale) +
                                          (x < 0 ? kChannelBins : 0))];
  });
}

}  // namespace

// A channel is one thread's, so nothing is shared; neighbours go together, as they share cache lines where
// channels lie last.
void Collector::count_channel_histograms(Slot& slot, const float* values, const Dims& dims) {
  const auto axis = static_cast<std::size_t>(slot.channel_axis);
  const std::int64_t outer = product(dims, 0, axis), channels = dims[axis],
                     inner = product(dims, axis + 1, dims.size());
  std::vector<ChannelStats>& all = slot.stats.channels;
  if (all.empty()) all.resize(static_cast<std::size_t>(channels));
  pool_.parallel_for(channels, grain_for(kGrain, outer * inner), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c)
      count_channel(all[static_cast<std::size_t>(c)], values, outer, channels, inner, c);
  });
}

std::vector<TensorStats> Collector::stats() const {
  std::vector<TensorStats> all;
  for (const auto& slot : slots_) all.push_back(slot->stats);
  std::sort(all.begin(), all.end(),
            [](const TensorStats& a, const TensorStats& b) { return a.name < b.name; });
  return all;
}

std::int64_t Collector::predicted_bytes(std::int64_t tensors, int threads) {
  const std::int64_t tensor = 2 * kBins * 8 + 512;
  const std::int64_t thread = std::int64_t{kCounterSets} * kSides * 4 + kBlock * (2 + 4);
  return tensors * tensor + threads * thread;
}

}  // namespace pare
