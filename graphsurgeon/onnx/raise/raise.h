// Raises a node of an older ai.onnx opset (7 and newer) to the operator's newest meaning, so that kernels,
// shape rules and passes know one form of each operator.
//
//   before                    what changes                                              raised to
//   all < 7                   broadcast and axis: sizes of 1 are put behind the operand   7
//   Squeeze, Unsqueeze < 13, ReduceSum < 13, other Reduce* < 18: axes becomes an input
//   Split < 13, < 18          split becomes an input; num_outputs is written              18
//   Slice < 10, Pad < 11, Clip < 11, TopK < 10: attributes become inputs                  newest
//   Dropout < 12              ratio goes (inference only); mask < 10 is cast              13
//   Softmax, LogSoftmax, Hardmax < 13   "coerce to 2-D at axis" becomes Flatten, the operator on the last
//                             axis, Reshape back; the plain operator where axis is the last (finish())
//   Upsample, Resize < 11     to Resize with asymmetric coordinates and floor             19
//   Resize < 13               empty roi, scales, sizes go                                 19
//   BatchNormalization < 14   training where somebody reads the statistics; spatial = 0 becomes arithmetic
//   Scatter                   to ScatterElements                                          18
//   GridSample < 20           bilinear, bicubic become linear, cubic                      20
//   RoiAlign < 16             output_half_pixel is written                                16
//   DFT < 20                  axis becomes an input                                       20
//   GroupNormalization < 21   one scale and bias a group become one a channel             21
//   Scan < 9                  a batch of scans becomes a Scan over the batch              9
// Every other operator's older forms are the newest form with defaults.
//
// Source: onnx/docs/Changelog.md and defs/*/old.cc of onnx 1.22.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

inline constexpr int kOldestOpset = 1;    // that is read
inline constexpr int kOldestWritten = 7;  // a graph of an older file is written with this one
inline constexpr int kNewestOpset = 27;

class Raiser {
 public:
  Raiser(Graph& graph, int opset) : graph_(graph), opset_(opset) {}

  // Appends the node in its newest form (and what it needs before it) to the graph.
  // Error kUnsupported naming the attribute or output that has no newer counterpart.
  void append(Node node);

  // Once shapes are inferred: collapses what append wrote for want of a rank. True if anything changed.
  bool finish();

  // For the rules.
  Graph& graph() { return graph_; }
  int opset() const { return opset_; }
  DType dtype(ValueId id) const;  // declared or guessed; float32 when nothing is known
  // With its type and shape as far as the graph so far tells (shapes are inferred when need be).
  const Value& known(ValueId id);
  ValueId ints(const Node& node, const char* what, std::vector<std::int64_t> values);
  ValueId constant(const Node& node, const char* what, Tensor tensor);
  ValueId temporary(const Node& node, const char* what);
  struct Coerced {
    NodeId flatten, op, shape, reshape;
    std::int64_t axis;
  };
  void add_coerced(const Coerced& c) { coerced_.push_back(c); }
  // A BatchNormalization whose old form names statistics: training, unless finish() finds no reader of them.
  void add_statistics(NodeId id) { statistics_.push_back(id); }
  NodeId emit(Node node);  // appends as it is

 private:
  Graph& graph_;
  int opset_;
  std::map<ValueId, DType> guessed_;
  std::vector<Coerced> coerced_;
  std::vector<NodeId> statistics_;
  std::size_t inferred_nodes_ = 0;  // how many there were when known() inferred shapes
  int fruitless_ = 0;
};

}  // namespace pare
