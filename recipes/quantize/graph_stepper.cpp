#include "recipes/quantize/graph_stepper.h"

#include <algorithm>
#include <set>

#include "datasets/state_feed.h"
#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/run/session.h"
#include "graphsurgeon/verbs/extract.h"

namespace pare {

GraphStepper::GraphStepper(const Graph& graph, Dataset& data, std::int64_t end, ThreadPool& pool)
    : graph_(graph), pool_(pool), order_(graph.nodes()) {
  if (!data.spec().feedback.empty())
    throw make_error(ErrorCode::kUnsupported, "a model with states is not run layer after layer")
        .hint("leave quantize.inputs: quantized out");
  end = std::min(end, data.sample_count());
  const std::int64_t size = data.fixed_batch() > 0 ? data.fixed_batch() : data.batch_size();
  for (std::int64_t at = 0, to = 0; at < end; at = to) {
    to = data.batch_end(at, end, size);
    Batch batch = data.read(at, to, &pool);
    PARE_ASSERT(batch.inputs.size() == graph_.inputs.size());
    held_.emplace_back();
    for (std::size_t i = 0; i < batch.inputs.size(); ++i)
      held_.back().emplace(graph_.inputs[i], std::move(batch.inputs[i]));
  }
}

// Values that nodes from `position` on read and that are no constants and not made there.
std::vector<ValueId> GraphStepper::needed_from(std::size_t position,
                                               const std::vector<ValueId>& extra) const {
  std::set<ValueId> made, needed(extra.begin(), extra.end());
  for (std::size_t i = position; i < order_.size(); ++i) {
    const Node& node = graph_.node(order_[i]);
    for (const ValueId id : node.in)
      if (id != ValueId::kNone && !graph_.is_constant(id) && made.count(id) == 0) needed.insert(id);
    for (const ValueId id : node.out) made.insert(id);
  }
  for (const ValueId id : graph_.inputs) needed.insert(id);  // they say how many samples a batch has
  return {needed.begin(), needed.end()};
}

void GraphStepper::advance_to(ValueId value, const std::vector<ValueId>& extra) {
  const auto found = std::find(order_.begin(), order_.end(), graph_.producer(value));
  const std::size_t next = found == order_.end() ? 0 : static_cast<std::size_t>(found - order_.begin()) + 1;
  std::vector<ValueId> wanted = extra;
  wanted.push_back(value);
  const std::size_t target = std::max(next, position_);
  const std::vector<ValueId> needed = needed_from(target, wanted);
  // What the piece makes of it, and what it reads.
  std::set<ValueId> made, reads;
  for (std::size_t i = position_; i < target; ++i) {
    const Node& node = graph_.node(order_[i]);
    for (const ValueId id : node.in)
      if (id != ValueId::kNone && !graph_.is_constant(id) && made.count(id) == 0) reads.insert(id);
    for (const ValueId id : node.out) made.insert(id);
  }
  std::vector<ValueId> outputs;
  for (const ValueId id : needed)
    if (made.count(id) != 0) outputs.push_back(id);
  if (!outputs.empty()) {
    ExtractOptions cut;
    for (const ValueId id : reads) cut.inputs.push_back(graph_.value(id).name);
    for (const ValueId id : outputs) cut.outputs.push_back(graph_.value(id).name);
    Graph piece = graph_;
    extract(piece, cut);
    const Lowered lowered = lower_for_cpu(piece);
    SessionOptions options;
    options.pool = &pool_;
    Session session(lowered.graph, options);
    std::vector<ValueId> order;  // of the piece's inputs, by name
    for (const ValueId id : piece.inputs) order.push_back(graph_.find_value(piece.value(id).name));
    for (std::map<ValueId, Tensor>& held : held_) {
      check_cancelled();
      std::vector<Tensor> inputs;
      for (const ValueId id : order) inputs.push_back(held.at(id));
      std::vector<Tensor> results = session.run(inputs);
      for (std::size_t i = 0; i < outputs.size(); ++i) held[outputs[i]] = std::move(results[i]);
    }
  }
  for (std::map<ValueId, Tensor>& held : held_)
    for (auto it = held.begin(); it != held.end();)
      it =
          std::find(needed.begin(), needed.end(), it->first) == needed.end() ? held.erase(it) : std::next(it);
  position_ = target;
}

bool GraphStepper::holds(ValueId value) const { return !held_.empty() && held_.front().count(value) != 0; }

const Tensor& GraphStepper::at(std::size_t batch, ValueId value) const {
  const auto it = held_.at(batch).find(value);
  if (it == held_.at(batch).end())
    fail(ErrorCode::kInternal, "value '{}' is not held", graph_.value(value).name);
  return it->second;
}

}  // namespace pare
