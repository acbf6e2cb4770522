#include "graphsurgeon/verbs/value_ranges.h"

#include <algorithm>
#include <cmath>

namespace pare {
namespace {

double largest_of(const TensorView& view) {
  if (view.dtype != DType::kF32) return -1;
  const float* x = view.as<float>();
  const std::int64_t count = view.size();
  float largest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::fabs(x[i]));  // NaN compares false
  return static_cast<double>(largest);
}

}  // namespace

double ValueRanges::of(const SubgraphPath& path, ValueId id) const {
  const auto it = largest.find({path, id});
  return it == largest.end() ? -1 : it->second;
}

RangeMeter::RangeMeter(std::shared_ptr<const Graph> graph, ThreadPool& pool) {
  SessionOptions options;
  options.pool = &pool;
  session_ = std::make_unique<Session>(graph, options);
  walk_graphs(*graph, [&](const SubgraphPath& path, const Graph& scope) {
    for (std::size_t i = 0; i < scope.value_count(); ++i) {
      const auto id = static_cast<ValueId>(i);
      const Value& value = scope.value(id);
      if (value.dtype != DType::kF32 || value.kind != ValueKind::kTensor || value.is_constant()) continue;
      if (value.producer == NodeId::kNone && !scope.is_input(id)) continue;  // captures are seen outside
      session_->watch(path, id, [this, path](ValueId seen, const TensorView& view) {
        double& entry = ranges_.largest[{path, seen}];
        entry = std::max(entry, largest_of(view));
      });
    }
  });
}

std::vector<Tensor> RangeMeter::run(const std::vector<Tensor>& inputs) {
  ++ranges_.runs;
  return session_->run(inputs);
}

}  // namespace pare
