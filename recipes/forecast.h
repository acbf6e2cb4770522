// What a run will take, said before it starts; the report compares it with what it took.
#pragma once

#include <string>

namespace pare {

class RunState;

struct Forecast {
  double seconds = 0;
  double anonymous_bytes = 0;  // most memory allocated at once
};

// From the sizes in the graph and one small batch of the calibration (else evaluation) data, timed. The
// batch is read through a data set of its own, so nothing that is counted anywhere changes.
Forecast forecast_run(RunState& state);

std::string to_string(const Forecast& forecast);  // "about 40 s and 310 MB of memory"

}  // namespace pare
