#include "eval/pair_layers.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>

#include "datasets/state_feed.h"
#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/build/lower_cpu.h"
#include "engine/run/session.h"

namespace pare {
namespace {

constexpr std::int64_t kBatch = 4;  // every watched value of the reference is held at once

const std::string& key_of(const Value& value) { return value.origin.empty() ? value.name : value.origin; }

// The other graph's value of the same name or, failing that, of the same origin. Names come first: a file
// that was written from the reference's graph has its names.
ValueId find_twin(const std::unordered_map<std::string, ValueId>& others, const Value& value) {
  for (const std::string* key : {&value.name, &value.origin}) {
    const auto found = others.find(*key);
    if (!key->empty() && found != others.end()) return found->second;
  }
  return ValueId::kNone;
}

// The value that stands for each origin. After Q/DQ several values may share one: the one that a node other
// than Q/DQ computes is the layer's own result.
std::unordered_map<std::string, ValueId> by_origin(const Graph& graph) {
  std::unordered_map<std::string, ValueId> found;
  const auto add = [&](ValueId id) {
    found.emplace(graph.value(id).name, id);
    found.emplace(key_of(graph.value(id)), id);
  };
  for (const ValueId id : graph.inputs) add(id);
  for (const NodeId node : graph.nodes()) {
    if (graph.node(node).is("QuantizeLinear") || graph.node(node).is("DequantizeLinear")) continue;
    for (const ValueId out : graph.node(node).out)
      if (out != ValueId::kNone) add(out);
  }
  return found;
}

bool is_layer(const Graph& graph, const Node& node, ValueId out) {
  if (graph.value(out).dtype != DType::kF32) return false;
  if (graph.is_output(out)) return true;
  for (const char* op : {"Conv", "ConvTranspose", "Gemm", "MatMul", "Add"})
    if (node.is(op)) return true;
  return false;
}

// Runs one graph and hands what is watched to `sink`, by the graph's own ids, in plain order.
class WatchedRun {
 public:
  using Sink = std::function<void(ValueId, const TensorView&)>;

  WatchedRun(const Graph& graph, const std::vector<ValueId>& watched, const Dataset& data, ThreadPool* pool,
             Sink sink)
      : lowered_(lower(graph, watched)),
        session_(lowered_.graph, options(pool)),
        feed_(data, graph),
        sink_(std::move(sink)) {
    for (const ValueId id : watched) {
      const ValueId twin = lowered_.find(id);
      if (twin == ValueId::kNone) continue;
      const bool channels_last = lowered_.graph->value(twin).layout == Layout::kChannelsLast;
      session_.watch(twin, [this, id, channels_last](ValueId, const TensorView& view) {
        if (channels_last)
          sink_(id, to_plain_order(view).view());
        else
          sink_(id, view);
      });
    }
  }
  void run(const Batch& batch) { feed_.run(session_, batch); }

 private:
  static Lowered lower(const Graph& graph, const std::vector<ValueId>& watched) {
    LowerOptions lower_options;
    lower_options.keep = watched;
    return lower_for_cpu(graph, lower_options);
  }
  static SessionOptions options(ThreadPool* pool) {
    SessionOptions session_options;
    session_options.pool = pool;
    return session_options;
  }
  Lowered lowered_;
  Session session_;
  StateFeed feed_;
  Sink sink_;
};

void add_once(std::vector<ValueId>& list, ValueId id) {
  if (std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
}

}  // namespace

std::vector<LayerPair> pair_layers(const Graph& reference, const Graph& candidate) {
  const std::unordered_map<std::string, ValueId> others = by_origin(candidate);
  std::vector<LayerPair> pairs;
  for (const NodeId id : reference.nodes()) {
    const Node& node = reference.node(id);
    for (const ValueId out : node.out) {
      if (out == ValueId::kNone || !is_layer(reference, node, out)) continue;
      const ValueId other = find_twin(others, reference.value(out));
      if (other == ValueId::kNone || candidate.value(other).dtype != DType::kF32) continue;
      pairs.push_back({out, other});
    }
  }
  return pairs;
}

LayerFigures compare_layers(const Graph& reference, const Graph& candidate, Dataset& data,
                            const EvaluateOptions& options) {
  const std::vector<LayerPair> pairs = pair_layers(reference, candidate);
  const std::unordered_map<std::string, ValueId> values = by_origin(reference);
  std::vector<ValueId> watch_reference, watch_candidate, clipped;
  for (const LayerPair& pair : pairs) {
    add_once(watch_reference, pair.reference);
    add_once(watch_candidate, pair.candidate);
  }
  const std::vector<ClipRange> ranges = options.ranges.empty() ? quantized_ranges(candidate) : options.ranges;
  for (const ClipRange& range : ranges) {
    const auto found = values.find(range.tensor);
    clipped.push_back(found == values.end() ? ValueId::kNone : found->second);
    if (clipped.back() != ValueId::kNone) add_once(watch_reference, clipped.back());
  }

  LayerFigures figures;
  figures.samples =
      options.layer_samples > 0 ? std::min(options.layer_samples, data.sample_count()) : data.sample_count();
  std::vector<Comparison> layers(pairs.size());
  std::vector<ClipCount> counts(ranges.size());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    counts[i].low = ranges[i].low;
    counts[i].high = ranges[i].high;
  }

  std::map<ValueId, std::vector<std::size_t>> counts_of, pairs_of;  // by value
  for (std::size_t i = 0; i < clipped.size(); ++i) counts_of[clipped[i]].push_back(i);
  for (std::size_t i = 0; i < pairs.size(); ++i) pairs_of[pairs[i].candidate].push_back(i);
  std::map<ValueId, Tensor> wanted;  // the reference's values of one batch that have a pair
  std::vector<bool> has_pair(reference.value_count(), false);
  for (const LayerPair& pair : pairs) has_pair[static_cast<std::size_t>(pair.reference)] = true;
  WatchedRun want(reference, watch_reference, data, options.pool, [&](ValueId id, const TensorView& view) {
    if (has_pair[static_cast<std::size_t>(id)])
      wanted[id] = Tensor::copy_of(view.dtype, view.dims, view.data,
                                   static_cast<std::size_t>(byte_count(view.dtype, view.dims)));
    const auto found = counts_of.find(id);
    if (found == counts_of.end()) return;
    for (const std::size_t i : found->second) counts[i].add(view);
  });
  WatchedRun got(candidate, watch_candidate, data, options.pool, [&](ValueId id, const TensorView& view) {
    for (const std::size_t i : pairs_of[id]) {
      const auto other = wanted.find(pairs[i].reference);
      if (other != wanted.end() && other->second.size() == view.size())
        layers[i].add(other->second.view(), view);
    }
  });
  const std::int64_t batch = data.fixed_batch() != 0 ? data.fixed_batch() : kBatch;
  figures.samples -= figures.samples % (data.fixed_batch() != 0 ? batch : 1);
  ProgressStep step(options.progress != nullptr ? *options.progress : no_progress(), "comparing layers",
                    figures.samples);
  for (std::int64_t begin = 0, end = 0; begin < figures.samples; begin = end) {
    check_cancelled();
    end = data.batch_end(begin, figures.samples, batch);
    const Batch samples = data.read(begin, end, options.pool);
    wanted.clear();
    want.run(samples);
    got.run(samples);
    step.advance(samples.count);
  }

  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (layers[i].samples() == 0) continue;
    const Value& value = reference.value(pairs[i].reference);
    const std::string op = value.producer == NodeId::kNone ? "" : reference.node(value.producer).op;
    figures.layers.push_back(
        {key_of(value), op, layers[i].sqnr_db(), layers[i].cosine(), layers[i].max_abs()});
  }
  std::int64_t outside = 0, seen = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i].seen == 0) continue;  // the reference has no such value (smoothed)
    figures.clipping.push_back({ranges[i].tensor, counts[i].share()});
    outside += counts[i].outside;
    seen += counts[i].seen;
  }
  figures.clipping_rate = seen == 0 ? 0 : static_cast<double>(outside) / static_cast<double>(seen);
  return figures;
}

}  // namespace pare
