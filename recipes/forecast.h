// What a run will take, said before it starts; the report compares it with what it took.
#pragma once

#include <string>

namespace pare {

class RunState;

struct Forecast {
  double seconds = 0;
  double anonymous_bytes = 0;  // most memory allocated at once
};

// Of blocks that came and went the allocator keeps some in the arena of the thread that asked for them, and
// which thread that is differs from run to run: measured runs of one recipe are 0 to 20 MB apart.
constexpr double kKeptByArenas = 16e6;

// From a rehearsal: the model is quantized with ranges that mean nothing, and the evaluation of one and of
// two batches (six where samples differ in shape) is timed and its memory measured. The batches are read
// through data sets of their own, so nothing that is counted anywhere changes. What it took is part of the
// run.
Forecast forecast_run(RunState& state);

// The same of a run that goes block by block: the first block is run on one batch with its second moments
// summed, its smallest layer is solved, and the rest is counted from there: products by their
// multiplications, solving by rows * inputs (^2 where a method works with second moments).
Forecast forecast_blocks(RunState& state);

std::string to_string(const Forecast& forecast);  // "about 40 s and 310 MB of memory"

}  // namespace pare
