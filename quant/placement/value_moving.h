// Operators that only move values: what comes out went in, in another order, fewer of them, or several times.
// They commute with quantization, so codes can go through them.
#pragma once

#include <optional>
#include <vector>

#include "engine/ir/graph.h"

namespace pare::quant {

// The inputs whose values the outputs consist of: {0} for MaxPool, Reshape, Flatten, Squeeze, Unsqueeze,
// Transpose, Identity, Slice, Split, Gather and its relatives, Expand, Tile, DepthToSpace, SpaceToDepth,
// Resize by the nearest value, Pad with zeros or the input's own values; all of Concat's. {} for a node that
// computes.
std::vector<int> moved_inputs(const Graph& graph, const Node& node);

// Whether the model has quantized this value: a DequantizeLinear computed it, or operators that move values
// did from such ones. A Concat counts when all its inputs have one scale for the tensor, the same.
bool has_codes(const Graph& graph, ValueId value);

// The constant behind an input of a node, through Transpose and Identity.
struct WeightSource {
  ValueId value = ValueId::kNone;
  Use use;  // the read of the constant itself: of the node, or of the first Transpose on the way
  std::vector<int> axes;  // which axis of the constant is axis i of what the node reads
};
// Nothing when it is no constant. A Transpose that others than Conv, ConvTranspose, Gemm and MatMul read is
// not looked through: they would see what was meant for the weight.
std::optional<WeightSource> weight_source(const Graph& graph, NodeId node, int slot);

// A constant, or one behind Transpose and Identity, whoever reads it on the way.
bool is_turned_constant(const Graph& graph, ValueId value);

// Conv, ConvTranspose, Gemm, MatMul.
bool is_linear(const Node& node);

}  // namespace pare::quant
