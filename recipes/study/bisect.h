// `pare bisect`: which layers are to blame when a quantized model misses a metric. The fewest layers that
// have to stay float, found by halving.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recipes/study/layer_study.h"

namespace pare {

struct BisectOptions {
  QuantizeChoices choices;  // `auto` decides nothing here (StudyJudge::quantize)
  double least = 0;         // the metric that the quantized model should have
  int most = 16;            // layers to name before giving up; from 1
};

struct BlamedLayer {
  std::string name, rule_name, format;
  double metric = 0, sqnr_db = 0;  // of the model with this layer and those before it in float
};

struct LayerBisection {
  double quantized = 0, sqnr_db = 0;  // the metric with every layer quantized
  double reference = 0;               // the float model's; infinity for a metric that compares two models
  std::vector<BlamedLayer>
      layers;                   // in the order in which they were found; none when the metric holds as it is
  bool reached = false;         // with these in float the metric holds
  std::int64_t candidates = 0;  // models that were quantized and judged
};

// Every round halves the layers that are still quantized, in graph order: the half that wins more by staying
// float (the metric, then SQNR; the first half at equality) is halved again, until one layer is left. It
// stays float from then on. Rounds follow until `least` is reached: 2 log2(n) candidates a layer named, where
// `pare sensitivity` judges all n. Noise adds up, so a layer that only fails together with another is found
// with it. Errors: kUsage for an unknown metric, `most` below 1, or a spec that quantizes no layer.
LayerBisection bisect_layers(const SensitivityInput& input, const BisectOptions& options);

}  // namespace pare
