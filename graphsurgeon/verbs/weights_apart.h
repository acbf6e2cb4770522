// `pare surgeon strip-weights` and `restore-weights`: a model without its weights, and with others (refit).
//
// In a stripped model each weight is a graph input of its name, type and shape behind the model's own inputs,
// and the metadata key "pare.stripped" lists them with the SHA-256 of their bytes. So it is a valid ONNX
// file, and says by itself what it lacks. Weights of subgraphs are captured from the main graph.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

struct StrippedWeight {
  std::string name;
  DType dtype = DType::kUndefined;
  Dims dims;
  std::string sha256;  // hex, of the bytes as a tensor holds them
};

struct StripOptions {
  std::int64_t min_bytes = 1024;  // smaller constants stay: shapes, axes, scalars
};

// Takes the weights out and returns them, by the names that they have in the stripped model (a weight of a
// subgraph may get a suffix, since names of the main graph are unique). Error kUsage when there is none, or
// when the model is stripped already.
std::map<std::string, Tensor> strip_weights(Graph& graph, const StripOptions& options = {});

// What a stripped model lacks, in order. Error kUsage when it is not one, kBadFile when its list is damaged.
std::vector<StrippedWeight> stripped_weights(const Graph& graph);

struct RestoreReport {
  std::int64_t restored = 0, changed = 0;  // changed: its bytes are not those that were taken out
  std::vector<std::string> unused;         // of the source, that the model does not ask for
};

// Gives the weights back. `same`: they must be the very bytes that were taken out.
// Error kBadFile naming the first tensor that is missing, has another type or shape or (with `same`) other
// bytes. After an error the graph is as it was.
RestoreReport restore_weights(Graph& graph, const std::map<std::string, Tensor>& source, bool same = false);

}  // namespace pare
