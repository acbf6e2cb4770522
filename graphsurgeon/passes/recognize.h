// Questions that the recognition passes ask: what made a value, is it a number, a product of what.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

// The node of that operator which made the value, or nullptr.
const Node* made_by(const Graph& graph, ValueId id, std::string_view op);

// A floating-point constant of one element.
std::optional<double> number(const Graph& graph, ValueId id);
bool is_number(const Graph& graph, ValueId id, double wanted);  // within 1e-4 of it, or 1e-9 of zero

// Of an operator with two operands, the one that is not `id`; kNone when `id` is neither.
ValueId other_operand(const Node& node, ValueId id);
// x of Add(x, number) and Add(number, x); kNone otherwise.
ValueId plus_number(const Graph& graph, ValueId id, double wanted);

// A tree of Mul, and of Div by numbers, as its factors: numbers multiplied together, the rest listed. Values
// in `stop` are not taken apart.
struct Factors {
  double number = 1;
  std::vector<ValueId> values;
};
Factors factors(const Graph& graph, ValueId id, const std::vector<ValueId>& stop, int depth = 4);

// The factors are exactly these, in any order.
bool are(const Factors& found, const std::vector<ValueId>& values, double wanted);

// x of ReduceMean(x, last k axes, keepdims = 1), and k; kNone otherwise.
ValueId mean_of_last_axes(const Graph& graph, ValueId id, int& k);

// x of x * x and x ^ 2; kNone otherwise.
ValueId square_of(const Graph& graph, ValueId id);

// v and epsilon of 1 / sqrt(v + epsilon) in any spelling, where `id` is the inverse root, or of
// sqrt(v + epsilon) where `inverse` is false.
ValueId root_of(const Graph& graph, ValueId id, bool inverse, double& epsilon);

// The constant holds one number for each element of x's last k axes (ones in front allowed): it, with just
// those k sizes.
std::optional<Tensor> weight_of_last_axes(const Graph& graph, ValueId constant, ValueId x, int k);

// Puts `node` in the place of node `id`, whose first output it computes.
void replace_node(Graph& graph, NodeId id, Node node);

}  // namespace pare
