// Derivatives of a graph's output by the outputs of linear layers inside it: a walk back over the nodes of a
// float graph, with the values of a forward run. What a decoder consists of has derivatives here:
//
//   MatMul by a constant, Add, Mul (of equal shapes, or by constants along the last axis), Sigmoid,
//   RMSNormalization, RotaryEmbedding (halves, whole heads, position_ids), Attention (causal, no mask, no
//   soft cap; heads along the last axis of three)
//
// Anything else between a layer and the output is error kUnsupported, which names the node; a graph is only
// walked as far as layers lie. All sums run in one order: the same bits for any threads.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/ir/graph.h"

namespace pare {

class Backward {
 public:
  // `layers`: MatMul nodes with a constant in slot 1. The graph must outlive this.
  Backward(const Graph& graph, ValueId output, std::vector<NodeId> layers, ThreadPool& pool);

  // Values whose tensors run() reads, `output` not among them.
  const std::vector<ValueId>& needed() const { return needed_; }

  // Calls visit(index in layers, dL / d(layer's output)) from the last layer to the first; `gradient` is
  // dL / d(output).
  using Visit = std::function<void(std::size_t layer, const Tensor& gradient)>;
  void run(const std::map<ValueId, Tensor>& values, Tensor gradient, const Visit& visit);

 private:
  struct Step;
  void add(ValueId id, Tensor gradient);
  void through(const Node& node, const Tensor& dy);
  void product(const Node& node, const Tensor& dy);
  void multiply(const Node& node, const Tensor& dy);
  void normalization(const Node& node, const Tensor& dy);
  void rotation(const Node& node, const Tensor& dy);
  void attention(const Node& node, const Tensor& dy);
  const Tensor& value(ValueId id) const;
  bool wanted(ValueId id) const { return id != ValueId::kNone && wanted_[static_cast<std::size_t>(id)]; }

  const Graph& graph_;
  ValueId output_;
  std::vector<NodeId> layers_;
  ThreadPool& pool_;
  std::vector<bool> wanted_;  // by value: a layer lies before it
  std::vector<NodeId> walk_;  // from the last node to the first
  std::vector<ValueId> needed_;
  std::map<ValueId, Tensor> packed_;  // transposed weights
  const std::map<ValueId, Tensor>* values_ = nullptr;
  std::map<ValueId, Tensor> gradients_;
};

}  // namespace pare
