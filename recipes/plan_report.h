// What quantize_model decided, as sections of the report.
#pragma once

#include <vector>

#include "calib/tensor_stats.h"
#include "eval/report.h"
#include "recipes/grammar/recipe.h"
#include "recipes/quantize/quantize_model.h"

namespace pare {

struct BlocksOutcome;

// `quantized`, `skipped`, `histograms`, the tables of candidates, weight methods and transforms; warnings
// about NaN, infinities and all-zero ranges.
void report_outcome(Report& report, const QuantizeOutcome& outcome);

// A table of the blocks, and what the activations between them took.
void report_blocks(Report& report, const BlocksOutcome& blocks);

// A histogram for the plot: at most 64 bins a side.
ReportHistogram plot_histogram(const TensorStats& stats);

// How it was done, in few words: "learned, ranges by minmax"; of method auto the candidate that was chosen
// ("mse + scaling"), or the calibrator when nothing was scored.
std::string chosen_name(const QuantizeOutcome& outcome, const QuantizeSpec& recipe);

}  // namespace pare
