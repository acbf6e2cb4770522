// Runs a graph. Buffers are reused as soon as the last reader is done; shapes seen before cost nothing
// again; any value may be watched.
//
//   Session session(graph, options);
//   session.watch(value, [&](const TensorView& x) { ... });
//   std::vector<Tensor> out = session.run({image});
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/ir/subgraph.h"
#include "engine/ops/registry.h"

namespace pare {

struct SessionOptions {
  ThreadPool* pool = nullptr;  // required; outlives the session
  bool only_invariant = true;  // calibration and evaluation need it; pure speed may switch it off
  bool profile = false;        // seconds a node
  // A large batch runs in parts that stay in cache (batch_axis.h), where the graph keeps samples apart and
  // nobody watches. The bits are those of the whole batch as long as only_invariant is set.
  bool split_batch = true;
  // A Loop that goes on longer is stopped: its condition will not end it.
  std::int64_t max_iterations = 10'000'000;
  std::uint64_t seed =
      0;  // of random operators without a seed of their own (engine/ops/elementwise/random.h)
};

// What goes into a session, and comes out, where a model has sequences or optionals.
struct RunValue {
  Tensor tensor;                 // a tensor, or an optional that holds one
  std::vector<Tensor> sequence;  // a sequence, or an optional that holds one
  bool present = true;           // false: an optional without a value
};

class Session {
 public:
  // Sees the value right after it was computed, on the thread that called run(). The view is valid
  // during the call only. Layout as Value::layout says.
  using Watcher = std::function<void(ValueId, const TensorView&)>;

  Session(std::shared_ptr<const Graph> graph, SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Graph& graph() const;

  // Inputs (in the order of graph().inputs), constants and node outputs may be watched.
  // One watcher a value; a watched value is never skipped.
  void watch(ValueId id, Watcher watcher);
  // The same inside a subgraph: seen in each iteration; never, when its branch is not taken. There what is
  // captured may be watched as well.
  void watch(const SubgraphPath& path, ValueId id, Watcher watcher);
  void clear_watchers();

  // Inputs in the order of graph().inputs; dtype and shape are checked against it (Error kUsage in
  // words, with both shapes). Outputs in the order of graph().outputs, owned by the caller.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs);
  // The same for models with sequences or optionals, which run() refuses (Error kUnsupported).
  std::vector<RunValue> run_values(const std::vector<RunValue>& inputs);

  struct Profile {
    NodeId node;
    std::string kernel;
    double seconds;  // summed over runs; of If, Loop and Scan without the nodes inside
    std::int64_t runs;
    SubgraphPath path = {};  // of the graph that the node stands in
  };
  std::vector<Profile> profile() const;    // nodes that ran, in order, those inside behind; empty unless
                                           // options.profile
  std::string kernel_of(NodeId id) const;  // the kernel last used, "" before the first run
  std::string kernel_of(const SubgraphPath& path, NodeId id) const;
  std::int64_t buffer_bytes() const;  // held for intermediate values now

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pare
