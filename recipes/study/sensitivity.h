// Which layers hurt: the model is quantized layer by layer, and each result is judged on the same samples.
// And from that, which format each layer should have.
//
// Everything is decided as `pare quantize` decides it (quant::place with the recipe's rules and one more,
// ranges by least expected error, weights by search); nothing here knows an operator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recipes/study/layer_study.h"

namespace pare {

struct LayerSensitivity {
  std::string name;    // the value that the layer computes, behind its path
  std::string format;  // of its weight, or of its activations where it has none
  double metric = 0;   // of the model with this layer quantized alone (or with all but it)
  double drop = 0;     // against float, positive when worse; against everything quantized with all_but_one
  double sqnr_db = 0;  // of the model's outputs
};

struct SensitivityOptions {
  QuantizeChoices choices;   // spec, percentiles; the calibrator may not be auto
  bool all_but_one = false;  // quantize all layers but one
};

// Most sensitive first: the largest drop, then the lowest SQNR, then graph order.
std::vector<LayerSensitivity> measure_sensitivity(const SensitivityInput& input,
                                                  const SensitivityOptions& options);

// --- mixed precision

struct SearchChoice {
  std::string name, format;  // a layer and the scheme that it gets; "float"
};
struct SearchPoint {
  double metric = 0, sqnr_db = 0, bits_per_weight = 0;
  double latency_ms = 0;  // of one batch of the data on this CPU, integer kernels; 0 when not asked for
  std::vector<SearchChoice> layers;
  bool chosen = false;
};
struct SearchOptions {
  QuantizeChoices choices;           // target and rules
  std::vector<std::string> schemes;  // in any order; "float" leaves a layer alone
  double least = 0;                  // the metric that must be kept
  int points = 8;                    // of the front that are measured
  bool by_latency = false;           // time them too, and choose the fastest instead of the fewest bits
};
struct SearchResult {
  std::vector<SearchPoint> front;  // most bits first, as measured
  double reference = 0;            // the float model's metric
};

// Each layer is measured alone with each scheme. Noise at the outputs adds up, so the search starts with the
// scheme of most bits everywhere and takes, one after the other, the step that costs the least noise a bit
// saved; evenly spaced points of that path are measured. Chosen: the fewest bits (by_latency: the least
// median time of 15 alternating runs on the first batch) whose metric is at least `least`, else the best
// metric. Error kUsage for unknown schemes.
SearchResult search_formats(const SensitivityInput& input, const SearchOptions& options);

}  // namespace pare
