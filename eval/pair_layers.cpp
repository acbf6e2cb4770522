#include "eval/pair_layers.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "datasets/state_feed.h"
#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/base/memory.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/run/session.h"

namespace pare {
namespace {

constexpr std::int64_t kBatch = 4;  // every watched value of the reference is held at once

const std::string& key_of(const Value& value) { return value.origin.empty() ? value.name : value.origin; }

using Places = std::unordered_map<std::string, ValuePlace>;
const ValuePlace kNowhere = {{}, ValueId::kNone};

// Names are unique in a graph, labels of subgraphs stand in front of those inside.
std::string scope_of(const Graph& graph, const SubgraphPath& path) {
  return path.empty() ? std::string() : to_string(graph, path) + "/";
}

// The other graph's value of the same name or, failing that, of the same origin. Names come first: a file
// that was written from the reference's graph has its names.
ValuePlace find_twin(const Places& others, const std::string& scope, const Value& value) {
  for (const std::string* key : {&value.name, &value.origin}) {
    const auto found = others.find(scope + *key);
    if (!key->empty() && found != others.end()) return found->second;
  }
  return kNowhere;
}

// The value that stands for each origin. After Q/DQ several values may share one: the one that a node other
// than Q/DQ computes is the layer's own result.
Places by_origin(const Graph& whole) {
  Places found;
  walk_graphs(whole, [&](const SubgraphPath& path, const Graph& graph) {
    const std::string scope = scope_of(whole, path);
    const auto add = [&](ValueId id) {
      found.emplace(scope + graph.value(id).name, ValuePlace(path, id));
      found.emplace(scope + key_of(graph.value(id)), ValuePlace(path, id));
    };
    for (const ValueId id : graph.inputs) add(id);
    for (const Capture& capture : graph.captures) add(capture.inner);
    for (const NodeId node : graph.nodes()) {
      if (graph.node(node).is("QuantizeLinear") || graph.node(node).is("DequantizeLinear")) continue;
      for (const ValueId out : graph.node(node).out)
        if (out != ValueId::kNone) add(out);
    }
  });
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
  using Sink = std::function<void(const ValuePlace&, const TensorView&)>;

  WatchedRun(const Graph& graph, const std::vector<ValuePlace>& watched, const Dataset& data,
             ThreadPool* pool, Sink sink)
      : lowered_(lower(graph, watched)),
        session_(lowered_.graph, options(pool)),
        feed_(data, graph),
        sink_(std::move(sink)) {
    for (const ValuePlace& place : watched) {
      const ValueId twin = lowered_.find(place.first, place.second);
      if (twin == ValueId::kNone) continue;
      const Layout layout = subgraph_at(*lowered_.graph, place.first).value(twin).layout;
      session_.watch(place.first, twin, [this, place, layout](ValueId, const TensorView& view) {
        if (view.dims.empty()) return;  // no samples in it
        if (layout == Layout::kChannelsLast)
          sink_(place, to_plain_order(view).view());
        else
          sink_(place, view);
      });
    }
  }
  void run(const Batch& batch) { feed_.run(session_, batch); }

 private:
  static Lowered lower(const Graph& graph, const std::vector<ValuePlace>& watched) {
    LowerOptions lower_options;
    for (const auto& [path, id] : watched)
      (path.empty() ? lower_options.keep : lower_options.keep_inside[path]).push_back(id);
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

void add_once(std::vector<ValuePlace>& list, const ValuePlace& place) {
  if (std::find(list.begin(), list.end(), place) == list.end()) list.push_back(place);
}

}  // namespace

std::vector<LayerPair> pair_layers(const Graph& reference, const Graph& candidate) {
  const Places others = by_origin(candidate);
  std::vector<LayerPair> pairs;
  walk_graphs(reference, [&](const SubgraphPath& path, const Graph& graph) {
    const std::string scope = scope_of(reference, path);
    for (const NodeId id : graph.nodes()) {
      const Node& node = graph.node(id);
      for (const ValueId out : node.out) {
        if (out == ValueId::kNone || !is_layer(graph, node, out)) continue;
        const ValuePlace other = find_twin(others, scope, graph.value(out));
        if (other.second == ValueId::kNone ||
            subgraph_at(candidate, other.first).value(other.second).dtype != DType::kF32)
          continue;
        pairs.push_back({out, other.second, path, other.first});
      }
    }
  });
  return pairs;
}

LayerFigures compare_layers(const Graph& reference, const Graph& candidate, Dataset& data,
                            const EvaluateOptions& options) {
  const std::vector<LayerPair> pairs = pair_layers(reference, candidate);
  const Places values = by_origin(reference);
  std::vector<ValuePlace> watch_reference, watch_candidate, clipped;
  for (const LayerPair& pair : pairs) {
    add_once(watch_reference, {pair.reference_path, pair.reference});
    add_once(watch_candidate, {pair.candidate_path, pair.candidate});
  }
  const std::vector<ClipRange> ranges = options.ranges.empty() ? quantized_ranges(candidate) : options.ranges;
  for (const ClipRange& range : ranges) {
    const auto found = values.find(range.tensor);
    clipped.push_back(found == values.end() ? kNowhere : found->second);
    if (clipped.back().second != ValueId::kNone) add_once(watch_reference, clipped.back());
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

  std::map<ValuePlace, std::vector<std::size_t>> counts_of, pairs_of;
  std::map<ValuePlace, std::deque<Tensor>> wanted;  // what the reference gave in one batch and has a pair
  for (std::size_t i = 0; i < clipped.size(); ++i) counts_of[clipped[i]].push_back(i);
  for (std::size_t i = 0; i < pairs.size(); ++i)
    pairs_of[{pairs[i].candidate_path, pairs[i].candidate}].push_back(i);
  std::set<ValuePlace> partners;
  for (const LayerPair& pair : pairs) partners.emplace(pair.reference_path, pair.reference);
  WatchedRun want(
      reference, watch_reference, data, options.pool, [&](const ValuePlace& place, const TensorView& view) {
        if (partners.count(place) != 0)
          wanted[place].push_back(Tensor::copy_of(
              view.dtype, view.dims, view.data, static_cast<std::size_t>(byte_count(view.dtype, view.dims))));
        const auto found = counts_of.find(place);
        if (found == counts_of.end()) return;
        for (const std::size_t i : found->second) counts[i].add(view);
      });
  std::vector<std::size_t> seen_of(pairs.size());  // iterations of the candidate in this batch
  WatchedRun got(candidate, watch_candidate, data, options.pool,
                 [&](const ValuePlace& place, const TensorView& view) {
                   for (const std::size_t i : pairs_of[place]) {
                     const auto other = wanted.find({pairs[i].reference_path, pairs[i].reference});
                     const std::size_t turn = seen_of[i]++;
                     if (other != wanted.end() && turn < other->second.size() &&
                         other->second[turn].size() == view.size())
                       layers[i].add(other->second[turn].view(), view);
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
    std::fill(seen_of.begin(), seen_of.end(), std::size_t{0});
    want.run(samples);
    got.run(samples);
    release_freed_memory();
    step.advance(samples.count);
  }

  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (layers[i].samples() == 0) continue;
    const Graph& graph = subgraph_at(reference, pairs[i].reference_path);
    const Value& value = graph.value(pairs[i].reference);
    const std::string op = value.producer == NodeId::kNone ? "" : graph.node(value.producer).op;
    figures.layers.push_back({scope_of(reference, pairs[i].reference_path) + key_of(value), op,
                              layers[i].sqnr_db(), layers[i].cosine(), layers[i].max_abs()});
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
