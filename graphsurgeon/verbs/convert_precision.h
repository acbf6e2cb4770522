// `pare surgeon convert-precision`: float32 graphs to float16 or bfloat16.
//
// Every float32 value gets one home type. A node computes in the low type when ONNX lets its operator have
// it, it is not blocked, its constants fit, and no value that it reads or gives was seen too large; nodes
// that only move elements follow what they read. Where reader and home differ stands one Cast, shared by all
// readers; a group of nodes that has nothing heavy in it (no Conv, MatMul, ...) and would cost more Casts in
// the low type than in float32 stays float32. Subgraphs are converted too: captured values come in their home
// type, and what an If, Loop or Scan carries has one type all the way.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "graphsurgeon/verbs/value_ranges.h"

namespace pare {

struct ConvertPrecisionOptions {
  DType to = DType::kF16;            // or kBF16
  bool keep_io = true;               // inputs and outputs of the graph stay float32
  std::vector<std::string> blocked;  // operators that stay float32, beside blocked_by_default()
  std::vector<std::string> exclude;  // nodes that do: their name, or "re:PATTERN" (name_pattern.h)
  // A node stays float32 when a value of it was seen above this; 0: half the largest number of the type (data
  // that was not seen may be larger).
  double largest = 0;
};

// Operators whose result means little in 16 bits (indices of near ties, running sums, sizes), or whose
// definition wants float32.
const std::vector<std::string>& blocked_by_default();

struct KeptNode {
  std::string name, op, scope;
  std::string why;  // "blocked operator", "value 'x' reaches 1.2e+05", ...
};

struct ConvertPrecisionReport {
  std::int64_t converted = 0;  // nodes that compute in the low type, subgraphs included
  std::vector<KeptNode> kept;  // nodes with float32 values that do not, in order
  std::int64_t casts = 0;      // that were added
  std::int64_t weight_bytes_before = 0, weight_bytes_after = 0;  // of float constants that nodes read
  std::int64_t constants = 0;                                    // that were converted
  std::int64_t out_of_range = 0;  // elements beyond the largest number: their node stays float32
  std::int64_t subnormal = 0;     // elements that became subnormal, with fewer bits
  std::int64_t flushed = 0;       // elements that were not zero and became zero
  std::int64_t unseen = 0;        // values in the low type that `ranges` says nothing of
  int min_opset = 0;              // that the result needs; 0: the graph's own will do
};

// Converts in place. `ranges` come from running this graph (RangeMeter); empty: nothing is known of values.
// Error kUsage: `to` is another type, an operator that does not exist, a pattern that is none, no node that
// `exclude` names. After an error the graph is as it was.
ConvertPrecisionReport convert_precision(Graph& graph, const ConvertPrecisionOptions& options,
                                         const ValueRanges& ranges);

// 10 log10(sum x^2 / sum (x - y)^2) of each floating-point output; infinity when equal, NaN when an element
// is not finite in one of them only.
std::vector<double> sqnr_of_outputs(const std::vector<Tensor>& reference, const std::vector<Tensor>& outputs);

}  // namespace pare
