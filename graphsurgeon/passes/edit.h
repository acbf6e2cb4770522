// Small questions and edits that several passes share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

// Both ranked, and every size certainly the same.
bool same_shape(const Shape& a, const Shape& b);

// The input, or kNone when it is left out or out of range.
ValueId input_of(const Node& node, std::size_t slot);

// A constant integer input's elements; nullopt when it is computed or left out.
std::optional<std::vector<std::int64_t>> constant_ints(const Graph& graph, const Node& node,
                                                       std::size_t slot);

// Takes a node out whose output is `from` unchanged: readers of the output read `from` instead. A graph
// output keeps its name (the producer of `from` takes it over); false, and nothing is changed, where that
// cannot be (from is a graph input, a constant, or another graph output).
bool bypass(Graph& graph, NodeId id, ValueId from);
bool can_bypass(const Graph& graph, NodeId id, ValueId from);

// Makes the node's outputs constants and takes it out. One tensor an output; outputs nobody wants are
// skipped.
void replace_by_constants(Graph& graph, NodeId id, std::vector<Tensor> values);

// The value's elements as double. False for types other than f64, f32, f16 and bf16.
bool to_doubles(const Tensor& tensor, std::vector<double>& out);
// Rounded to nearest, ties to even. False, and nothing is made, when an element is not finite in `type`.
bool from_doubles(DType type, const Dims& dims, const std::vector<double>& values, Tensor& out);

// A constant that takes the place of `old` (kNone: of nothing) for one user. It inherits the name when nobody
// else reads the old one.
ValueId replacement_constant(Graph& graph, ValueId old, const std::string& name_if_none, Tensor tensor);

}  // namespace pare
