// The largest magnitude of each floating-point value of a graph, seen while it runs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/ir/subgraph.h"
#include "engine/run/session.h"

namespace pare {

struct ValueRanges {
  // Of values that were computed or given; NaN is left out, infinities count. What never ran is not there.
  std::map<std::pair<SubgraphPath, ValueId>, double> largest;
  std::int64_t runs = 0;

  // -1 when the value was never seen.
  double of(const SubgraphPath& path, ValueId id) const;
};

// Watches every float32 value, in subgraphs too. The graph must outlive it; so must the pool.
class RangeMeter {
 public:
  RangeMeter(std::shared_ptr<const Graph> graph, ThreadPool& pool);

  std::vector<Tensor> run(const std::vector<Tensor>& inputs);  // errors as Session::run
  Session& session() { return *session_; }
  const ValueRanges& ranges() const { return ranges_; }

 private:
  ValueRanges ranges_;
  std::unique_ptr<Session> session_;
};

}  // namespace pare
