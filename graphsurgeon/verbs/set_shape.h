// `pare surgeon set-shape`: other sizes for inputs, and what follows from them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

// "1x3x224x224", "batch,3,?,?" or "[batch,3,h,w]": numbers, symbols (letters, digits, '_', '.', '-'; not only
// digits), "?" for a size without a name. With a comma in it the text is split at commas, else at 'x'.
// Error kUsage for anything else. "" and "[]" are a scalar.
std::vector<Dim> parse_dims(const std::string& text);

struct SetShapeOptions {
  std::vector<std::pair<std::string, std::vector<Dim>>> inputs;  // by name
  std::vector<std::pair<std::string, Dim>> symbols;              // a symbol gets a number or another name
};

struct SetShapeReport {
  int changed_values = 0;             // whose inferred shape is another one now, subgraphs included
  std::vector<std::string> warnings;  // outputs whose shape cannot be inferred any more
};

// Sets the shapes, then infers all others anew. A symbol that an input's new shape replaces is replaced
// wherever it stands: it was the same number everywhere.
// Error kUsage: no such input or symbol; a symbol that would be two numbers; shapes that contradict the model
// (the message names the node and both shapes). After an error the graph is as it was.
SetShapeReport set_shapes(Graph& graph, const SetShapeOptions& options);

}  // namespace pare
