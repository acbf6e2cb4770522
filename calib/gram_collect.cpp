#include "calib/gram_collect.h"

#include <algorithm>
#include <map>
#include <memory>

#include "calib/calibrate.h"
#include "calib/gram_geometry.h"
#include "datasets/state_feed.h"
#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/base/memory.h"
#include "engine/run/session.h"

namespace pare {
namespace {

// One matrix, and the layers that it is of.
struct Slot {
  ValuePlace place;
  GramGeometry geometry;
  std::string name;  // of its first layer
  std::vector<std::size_t> targets;
  std::int64_t held = 0, bytes = 0, work = 0;  // matrices; with positions that wait; while a block is summed
};

std::string layer_label(const Graph& graph, const GramTarget& target) {
  const Node& node = subgraph_at(graph, target.path).node(target.node);
  if (!node.name.empty()) return node.name;
  return value_label(graph, target.path, node.out.at(0));
}

std::vector<Slot> slots_of(const Graph& graph, const std::vector<GramTarget>& targets,
                           const GramOptions& options) {
  std::vector<Slot> slots;
  for (std::size_t t = 0; t < targets.size(); ++t) {
    const Graph& at = subgraph_at(graph, targets[t].path);
    const Node& node = at.node(targets[t].node);
    Slot slot;
    slot.name = layer_label(graph, targets[t]);
    if (!gram_geometry(at, node, slot.geometry))
      throw make_error(ErrorCode::kUsage, "'{}' ({}) has no constant weight that second moments are of",
                       slot.name, node.op)
          .hint("leave the layer out (ignore, --exclude), or take --method search, which needs none");
    slot.place = {targets[t].path, node.in[0]};
    const auto same = std::find_if(slots.begin(), slots.end(), [&](const Slot& other) {
      return other.place == slot.place && other.geometry == slot.geometry;
    });
    if (same != slots.end()) {
      same->targets.push_back(t);
      continue;
    }
    slot.targets = {t};
    const std::int64_t n = slot.geometry.n(), groups = slot.geometry.groups;
    slot.held = GramAccumulator::held_bytes(n, groups) * (options.held_out > 0 ? 2 : 1);
    slot.bytes = slot.held + GramAccumulator::waiting_bytes(n, groups);
    slot.work = GramAccumulator::work_bytes(n);
    slots.push_back(std::move(slot));
  }
  return slots;
}

// Ends of the passes, in slots.
std::vector<std::size_t> cut_passes(const std::vector<Slot>& slots, std::int64_t limit) {
  std::vector<std::size_t> ends;
  std::int64_t bytes = 0;
  for (std::size_t s = 0; s < slots.size(); ++s) {
    if (bytes > 0 && bytes + slots[s].bytes > limit) {
      ends.push_back(s);
      bytes = 0;
    }
    bytes += slots[s].bytes;
  }
  if (!slots.empty()) ends.push_back(slots.size());
  return ends;
}

class Pass {
 public:
  Pass(const Graph& source, const std::vector<Slot>& slots, std::size_t begin, std::size_t end,
       ThreadPool& pool)
      : slots_(slots), begin_(begin), pool_(pool) {
    std::vector<CalibratedValue> values;
    std::map<ValuePlace, std::vector<std::size_t>> readers;  // a value has one watcher
    for (std::size_t s = begin; s < end; ++s) {
      const Slot& slot = slots[s];
      sums_.push_back(
          std::make_unique<GramAccumulator>(slot.name, slot.geometry.n(), slot.geometry.groups, pool));
      if (readers[slot.place].empty()) values.push_back({slot.place.second, -1, slot.place.first});
      readers[slot.place].push_back(s);
    }
    const WatchableGraph graph = lower_to_watch(source, values);
    SessionOptions options;
    options.pool = &pool;
    session_ = std::make_unique<Session>(graph.lowered.graph, options);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const WatchedValue& watched = graph.watched[i];
      const Layout layout = subgraph_at(*graph.lowered.graph, watched.path).value(watched.id).layout;
      session_->watch(
          watched.path, watched.id,
          [this, layout, list = readers[{values[i].path, values[i].id}]](ValueId, const TensorView& view) {
            for (const std::size_t s : list) add(s, view, layout);
          });
    }
  }

  Session& session() { return *session_; }
  Gram take(std::size_t slot) { return sums_[slot - begin_]->take(); }
  Gram finish(std::size_t slot) { return sums_[slot - begin_]->finish(); }

 private:
  void add(std::size_t s, const TensorView& view, Layout layout) {
    const Slot& slot = slots_[s];
    GramAccumulator& sum = *sums_[s - begin_];
    if (view.dtype != DType::kF32)
      throw make_error(ErrorCode::kUnsupported, "the input of '{}' is {}: second moments are of float32",
                       slot.name, name(view.dtype))
          .hint("leave the layer out (ignore, --exclude), or convert the model to float32");
    with_context(fmt::format("summing up what '{}' reads", slot.name), [&] {
      const GramRows rows(slot.geometry, view.dims, layout);
      for (std::int64_t at = 0; at < rows.positions();) {
        std::int64_t k = rows.positions() - at;
        float* out = sum.rows(k);
        pool_.parallel_for(k, 16, [&](std::int64_t begin, std::int64_t end) {
          rows.gather(view.as<float>(), at + begin, at + end, sum.group_stride(), sum.column_stride(),
                      out + begin * sum.width());
        });
        sum.commit(k);
        at += k;
      }
    });
  }

  const std::vector<Slot>& slots_;
  std::size_t begin_;
  ThreadPool& pool_;
  std::vector<std::unique_ptr<GramAccumulator>> sums_;
  std::unique_ptr<Session> session_;
};

}  // namespace

void collect_grams(const Graph& graph, const std::vector<GramTarget>& targets, Dataset& data,
                   const GramOptions& options, const GramsDone& done) {
  PARE_ASSERT(options.pool);
  const std::int64_t end = options.end < 0 ? data.sample_count() : std::min(options.end, data.sample_count());
  if (end - options.begin <= options.held_out)
    throw make_error(ErrorCode::kUsage, "{} samples cannot be shared out: {} of them are to be held out",
                     std::max<std::int64_t>(end - options.begin, 0), options.held_out)
        .hint("give more calibration samples");
  std::int64_t fit_end = end - options.held_out;
  if (data.fixed_batch() > 1) {  // batches are all alike: the border moves to the next one in front
    fit_end -= (fit_end - options.begin) % data.fixed_batch();
    if (fit_end == options.begin)
      throw make_error(ErrorCode::kUsage,
                       "the model takes {} samples at once: too few are left beside the held-out ones",
                       data.fixed_batch())
          .hint("give more samples, or free the batch: `pare surgeon set-shape`");
  }
  const std::int64_t batch = data.fixed_batch() > 0 ? data.fixed_batch()
                             : options.batch > 0    ? options.batch
                                                    : data.batch_size();
  const std::vector<Slot> slots = slots_of(graph, targets, options);
  const std::vector<std::size_t> ends = cut_passes(slots, options.memory_bytes);
  ProgressStep step(options.progress != nullptr ? *options.progress : no_progress(), "second moments",
                    static_cast<std::int64_t>(ends.size()) * (end - options.begin));
  std::size_t first = 0;
  for (const std::size_t last : ends) {
    Pass pass(graph, slots, first, last, *options.pool);
    StateFeed feed(data, graph);
    std::vector<GramPair> pairs(last - first);
    for (std::int64_t at = options.begin, to = 0; at < end; at = to) {
      check_cancelled();
      to = data.batch_end(at, at < fit_end ? fit_end : end, batch);
      with_context(fmt::format("running samples {} to {}", at, to - 1),
                   [&] { feed.run(pass.session(), data.read(at, to, options.pool)); });
      release_freed_memory();
      step.advance(to - at);
      if (to != fit_end) continue;
      for (std::size_t s = first; s < last; ++s)
        pairs[s - first].fit = options.held_out > 0 ? pass.take(s) : pass.finish(s);
    }
    for (std::size_t s = first; s < last; ++s) {
      if (options.held_out > 0) pairs[s - first].held_out = pass.finish(s);
      const auto pair = std::make_shared<const GramPair>(std::move(pairs[s - first]));
      for (const std::size_t target : slots[s].targets) done(target, pair);
    }
    first = last;
  }
}

GramForecast forecast_grams(const Graph& graph, const std::vector<GramTarget>& targets,
                            const GramOptions& options) {
  const std::vector<Slot> slots = slots_of(graph, targets, options);
  GramForecast forecast;
  std::size_t first = 0;
  for (const std::size_t last : cut_passes(slots, options.memory_bytes)) {
    std::int64_t bytes = 0, work = 0, held = 0;
    for (; first < last; ++first) {
      bytes += slots[first].bytes;
      held += slots[first].held;
      work = std::max(work, slots[first].work);
    }
    forecast.most = std::max(forecast.most, forecast.held + bytes + work);
    forecast.held += held;
    ++forecast.passes;
  }
  return forecast;
}

}  // namespace pare
