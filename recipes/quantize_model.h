// From a float graph, statistics and samples to the quantized graph: the loops over quant and eval that
// choose ranges, smoothing and bias correction by measured drift.
//
//   calibrator NAME   that method for every activation
//   calibrator auto   every uniform method (least expected error, min-max, percentiles, entropy) is scored by
//                     the output SQNR on held-out calibration samples. The best wins.
//   method auto       smoothing and bias correction are tried with the best of them, each kept only if the
//                     score rises.
//
// The test set is never looked at. Nothing depends on batch size or threads. One table says all of it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calib/calibrate.h"
#include "calib/ranges.h"
#include "calib/tensor_stats.h"
#include "calib/trt_cache.h"
#include "datasets/dataset.h"
#include "engine/base/progress.h"
#include "engine/base/thread_pool.h"
#include "engine/ir/graph.h"
#include "eval/evaluate.h"
#include "quant/plan.h"
#include "quant/spec.h"

namespace pare {

class LayerJournal;

// More bytes of weights than that go into a file of their own: it is streamed, while a message of ONNX is
// built in memory.
inline constexpr std::int64_t kStreamedWeights = std::int64_t{256} << 20;

// The activations that calibration must watch for a spec, with their channel axis where smoothing may ask for
// maxima by channel. Ids of `graph`.
std::vector<CalibratedValue> values_to_watch(const Graph& graph, const quant::Spec& spec);

struct QuantizeInput {
  const Graph* graph = nullptr;     // float, simplified, with shapes
  std::vector<TensorStats> stats;   // of values_to_watch; sorted by name
  const TrtCache* given = nullptr;  // scales instead of statistics: nothing is searched or scored
  Dataset* calibration = nullptr;   // what the statistics saw. Null: no smoothing, no bias correction
  Dataset* held_out = nullptr;      // for scoring: samples that calibration did not see. Null or an empty
  SampleRange held_out_range;       // range: nothing is scored, mse is taken
  ThreadPool* pool = nullptr;       // required
  Progress* progress = nullptr;
  LayerJournal* journal = nullptr;  // finished layers and scores; null: everything is computed, in memory
};

struct QuantizeChoices {
  quant::Spec spec;
  std::string calibrator = "auto";  // or minmax, percentile(P), entropy, mse
  std::vector<double> percentiles = {99.9, 99.99, 99.999};
};

struct ScoredCandidate {
  std::string name;  // "mse", "mse x 1.1 + smoothing + bias correction"
  double held_out_sqnr_db = 0;
  bool chosen = false;
  double seconds = 0;
};

struct SmoothedValue {
  std::string tensor;
  double strength = 0, predicted_gain_db = 0;
};

struct QuantizeOutcome {
  Graph source;  // the float graph of the plan: smoothed, biases corrected
  quant::Plan plan;
  Graph quantized;
  std::vector<RangeChoice> ranges;          // by plan.activations: expected error and clipping
  std::vector<TensorStats> stats;           // by plan.activations: what the ranges came from
  std::vector<ScoredCandidate> candidates;  // empty when nothing was scored
  std::vector<SmoothedValue> smoothed;
  int biases_corrected = 0;
  double scoring_seconds = 0;  // of the whole, spent on drift evaluations
};

QuantizeOutcome quantize_model(const QuantizeInput& input, const QuantizeChoices& choices);

}  // namespace pare
