// What calibration must see of a graph.
#pragma once

#include <vector>

#include "calib/calibrate.h"
#include "quant/placement/spec.h"

namespace pare {

// The activations that calibration must watch for a spec, with their channel axis where channel factors may
// ask for maxima by channel. Ids of `graph`.
std::vector<CalibratedValue> values_to_watch(const Graph& graph, const quant::Spec& spec);

// The same, and an error kUnsupported for keys and values that the model does not have; or (`spec` null) for
// every target and method at once, so that the statistics file serves them all: `per_channel` adds a
// histogram for each channel to it.
std::vector<CalibratedValue> calibrated_values(const Graph& graph, const quant::Spec* spec,
                                               bool per_channel = false);

}  // namespace pare
