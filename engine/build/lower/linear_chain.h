// A convolution or matrix product and what can run inside its kernel: finding, shared by the float and the
// integer lowering.
#pragma once

#include <string>
#include <vector>

#include "engine/build/lower/lowering.h"
#include "engine/ir/graph.h"

namespace pare::lowering {

struct Chain {
  NodeId linear = NodeId::kNone;  // Conv, Gemm, MatMul
  std::vector<NodeId> nodes;      // all of them, in order
  ValueId bias = ValueId::kNone;
  ValueId residual = ValueId::kNone;
  std::string activation;
  Attributes activation_attrs;
  ValueId result = ValueId::kNone;  // the value the last node computes
};

// Bias Add (MatMul), one residual Add and one activation behind a Conv, Gemm or MatMul, as long as nobody
// else reads what is between and none of it is kept. Changes nothing.
Chain follow_chain(const Graph& graph, NodeId start, const Kept& kept);

// Sets activation and its attributes when the node is one that pare.Conv and pare.MatMul know.
bool as_activation(const Graph& graph, const Node& node, Chain& chain);

// Equal shapes as far as symbols can say: the sum then needs no broadcasting.
bool same_shape(const Graph& graph, ValueId a, ValueId b);

// A constant [.., width] whose other sizes are 1.
bool is_row_vector(const Graph& graph, ValueId id, std::int64_t width);
// Last-axis size of a linear node's result, -1 when not known.
std::int64_t result_width(const Graph& graph, const Node& node);

// strides, dilations, pads and group of a Conv whose input has a known rank, defaults filled in.
void set_conv_attributes(const Graph& graph, const Node& conv, Node& fused);

// Puts `fused` where the last node of the chain stood and gives it the chain's result; the chain is removed.
void replace_chain(Graph& graph, const Chain& chain, Node fused);

}  // namespace pare::lowering
