// Runs a graph over a data set piece by piece, in the order of its nodes, so that what a later piece computes
// with (weights that were quantized meanwhile) may be decided between two pieces. Each node runs once a
// sample; values that later pieces need are held for all samples.
//
// Memory: the held values, for all samples (a language model: its residual stream and what the next layer
// reads). The graph around subgraphs only; a piece runs whole sessions, lowered as any.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "datasets/dataset.h"
#include "engine/base/thread_pool.h"
#include "engine/ir/graph.h"

namespace pare {

class GraphStepper {
 public:
  // Samples [0, end) of `data`, in its batches. The graph is copied; weights may be changed by
  // set_constant. Error kUnsupported for a data set with states.
  GraphStepper(const Graph& graph, Dataset& data, std::int64_t end, ThreadPool& pool);

  const Graph& graph() const { return graph_; }
  void set_constant(ValueId id, Tensor value) { graph_.value(id).constant = std::move(value); }

  // Runs everything up to the producer of `value` (by node order) that has not run.
  // Values of `extra` that exist by now stay held until the next call, even if no later node needs them.
  void advance_to(ValueId value, const std::vector<ValueId>& extra = {});

  std::size_t batches() const { return held_.size(); }
  // Of one batch: inputs of the graph and values that are held. Error kInternal for another.
  const Tensor& at(std::size_t batch, ValueId value) const;
  bool holds(ValueId value) const;

 private:
  std::vector<ValueId> needed_from(std::size_t position, const std::vector<ValueId>& extra) const;

  Graph graph_;
  ThreadPool& pool_;
  std::vector<NodeId> order_;
  std::size_t position_ = 0;
  std::vector<std::map<ValueId, Tensor>> held_;
};

}  // namespace pare
