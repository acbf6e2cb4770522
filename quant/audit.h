// Export audit: what stands in the written file, against what was decided.
//
// The file is read back by the ordinary reader; every code, scale and zero point is compared bit by bit,
// and every dequantized weight with its float original (half a step, unless the code is at the edge).
#pragma once

#include <string>
#include <vector>

#include "quant/plan.h"

namespace pare::quant {

struct Mismatch {
  std::string tensor, what;
};

struct AuditResult {
  std::int64_t tensors = 0;  // weights and activations compared
  std::int64_t codes = 0;    // elements compared
  std::vector<Mismatch> mismatches;
  bool passed() const { return mismatches.empty(); }
};

// What is wrong with the first code that is not the nearest to its weight, "" where none is, and for plans
// whose codes make up for each other (WeightPlan::nearest). Half a step, unless the code is at the edge.
std::string not_nearest(const Tensor& weight, const WeightSite& site, const WeightPlan& plan);

// Of absent weights (engine/base/absent_tensor.h), whose codes were compared before, codes, scales and zero
// points alone are. A weight that the file holds in another form (MatMulNBits) is dequantized by the reader's
// own operators and must give the same bits.
//
// `source` is the float graph of the plan, `read_back` the written file as read again.
AuditResult audit(const Graph& source, const Plan& plan, const Graph& read_back);

// The same for a file that has no Q/DQ (QOperator): codes, scales and zero points are found by the names that
// apply() gave them, and each must be a constant of the file with the same bits.
AuditResult audit_constants(const Graph& source, const Plan& plan, const Graph& read_back);

}  // namespace pare::quant
