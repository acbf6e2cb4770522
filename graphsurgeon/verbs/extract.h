// `pare surgeon extract` and `prune`: a part of a graph, cut at values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

struct ExtractOptions {
  // Names of values of the graph itself (not of subgraphs). Inputs may be any: graph inputs, inner values,
  // constants (then the weight is asked for). Empty: the graph's own. Outputs may be any computed value.
  std::vector<std::string> inputs, outputs;
};

struct ExtractReport {
  std::int64_t nodes_before = 0, nodes_after = 0;  // subgraphs included
  std::vector<std::string> unused_inputs;          // asked for, but no output needs them: they stay inputs
  std::vector<std::string> dropped_inputs;         // of the graph, that the part does not need
};

// Cuts the graph in place: what the outputs need, up to the inputs. Types and shapes of the new inputs are
// inferred ones. Without `inputs`, inputs that nothing needs go.
// Error kUsage: a name that is not there (with the nearest one), a name twice, an output that is an input or
// a constant, an output that also needs an input that was not named; kUnsupported: the type of a new input is
// not known. After an error the graph is as it was.
ExtractReport extract(Graph& graph, const ExtractOptions& options);

struct PruneOptions {
  std::vector<std::string> drop_outputs;  // names of outputs
  std::vector<std::string> keep_outputs;  // or: only these, in the graph's order
  bool keep_inputs = false;               // inputs that nothing reads stay
};

struct PruneReport {
  std::int64_t nodes_before = 0, nodes_after = 0;
  std::vector<std::string> dropped_outputs, dropped_inputs;
};

// Drops outputs, then nodes, constants and inputs that nothing needs any more. Error kUsage: not an output,
// or none would be left.
PruneReport prune(Graph& graph, const PruneOptions& options);

}  // namespace pare
