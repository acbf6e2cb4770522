// `pare surgeon diff`: what is different between two graphs, structure and weights, by content.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

struct DiffOptions {
  // Names of values and nodes do not count: values are paired by what computes them, starting at the inputs
  // and outputs in their order.
  bool ignore_names = false;
  bool weights = true;  // false: constants are compared by type and shape only
};

struct Difference {
  std::string kind;           // "input", "output", "node", "attribute", "edge", "weight"
  std::string where;          // scope, node or value
  std::string first, second;  // what stands there; "" where it is not there at all
  double max_abs = -1;        // weights of one type and shape: largest difference; -1 otherwise
};

struct DiffReport {
  std::vector<Difference> differences;  // in the order of the first graph, then what only the second has
  std::int64_t nodes_first = 0, nodes_second = 0;  // subgraphs included
  std::int64_t weights_equal = 0, weights_different = 0;
  bool same() const { return differences.empty(); }
};

// By name: nodes are paired by what they compute (their first output's name), so the order of nodes and the
// names of nodes and weights do not count; weights are compared where they are read. The opset of the file
// and its metadata are not looked at: the graphs mean the same whatever they are.
DiffReport diff_graphs(const Graph& first, const Graph& second, const DiffOptions& options = {});

}  // namespace pare
