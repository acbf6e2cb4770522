// gptq and learned for outputs that are not alike (layer.h): blocks of rows, each against the errors that
// those before it left in the outputs.
#pragma once

#include <optional>

#include "quant/rounding/layer.h"

namespace pare::quant {

// Rows that are solved together.
inline constexpr std::int64_t kCoupledRows = 64;

// Nothing where the problem has no second moments of outputs that fit it, where the method does not look at
// them, where rows share scales, or where HO cannot be factored.
std::optional<LayerSolution> solve_coupled(const LayerProblem& problem, const LayerOptions& options,
                                           ThreadPool& pool);

}  // namespace pare::quant
