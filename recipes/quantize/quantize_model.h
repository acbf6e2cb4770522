// From a float graph, statistics and samples to the quantized graph: the loops over quant and eval that
// choose ranges, transforms, codes and biases by measured drift. Weights alone, static and dynamic
// activations go one way:
//
//   moments of the layers' inputs -> transforms of the float graph (channel factors, low-rank products; its
//   outputs are compared after each) -> codes of every weight -> ranges -> biases -> score
//
//   calibrator NAME   that method for every activation
//   calibrator auto   every uniform method (least expected error, min-max, percentiles, entropy) is scored by
//                     the output SQNR on held-out calibration samples. The best wins.
//   method NAME       (a layer, by rules) that method: rtn,
//                     search, gptq, awq, smoothquant, equalize, learned,
//                     low_rank
//   method auto       weights by the least output error of their layer, channel factors by the least loss of
//                     their group, bias correction by halves of the data: each tried with the best so far,
//                     each kept only if the score rises. Eight-bit weights beside eight-bit activations come
//                     last, where they alone make a good part of the error
//                     (docs/weight-methods.md). Without held-out samples: a searched grid, nothing
//                     else. Channel factors that change the float outputs are left out, with a note; the same
//                     asked for by name is an error.
//
// The test set is never looked at. Nothing depends on batch size or threads. One table says all of it.
#pragma once

#include <functional>
#include <optional>
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
#include "quant/placement/spec.h"
#include "quant/plan.h"
#include "recipes/quantize/low_rank_layers.h"
#include "recipes/quantize/reached_layers.h"
#include "recipes/quantize/scale_layers.h"
#include "recipes/quantize/solve_in_order.h"
#include "recipes/quantize/solve_weights.h"
#include "recipes/quantize/values_to_watch.h"

namespace pare {

class LayerJournal;

// More bytes of weights than that go into a file of their own: it is streamed, while a message of ONNX is
// built in memory.
inline constexpr std::int64_t kStreamedWeights = std::int64_t{256} << 20;

struct QuantizeInput {
  const Graph* graph = nullptr;     // float, simplified, with shapes
  std::vector<TensorStats> stats;   // of values_to_watch; sorted by name
  const TrtCache* given = nullptr;  // scales instead of statistics: nothing is searched or scored
  Dataset* calibration = nullptr;   // what the statistics saw. Null: no transforms, no bias correction
  Dataset* held_out = nullptr;      // for scoring: samples that calibration did not see. Null or an empty
  SampleRange held_out_range;       // range: nothing is scored, mse is taken
  ThreadPool* pool = nullptr;       // required
  Progress* progress = nullptr;
  const LayerGrams* grams = nullptr;  // of `graph`, collected before; null: collected when they are needed
  LayerJournal* journal = nullptr;    // finished layers and scores; null: everything is computed, in memory
};

struct QuantizeChoices {
  quant::Spec spec;
  std::string calibrator = "auto";  // or minmax, percentile(P), entropy, mse
  std::vector<double> percentiles = {99.9, 99.99, 99.999};
  std::optional<double> alpha;          // of smoothquant; absent: searched for each layer
  std::int64_t rank = 32;               // of low_rank
  std::optional<bool> bias_correction;  // absent: method auto tries it
  SolveOptions solve;                   // damp, act order
  bool folded_only = false;  // transforms add no operators: what a checkpoint holds are weights alone
  // "float": layers are solved for what they read in the float model; "quantized": one after the other, each
  // for what the quantized layers before it give (solve_in_order.h).
  std::string inputs = "float";
  InOrderOptions in_order;
  // "layer": weight errors count by what they do to the layer's output; "model": by what that does to the
  // predictions of a language model (calib/gradient_grams.h).
  std::string objective = "layer";
  bool rotate = false;  // quant/transform/rotation.h, before anything else
  // Channel factors before weights are solved by their method: "", "awq", "smoothquant", "equalize".
  std::string scaling;
};

struct ScoredCandidate {
  std::string name;  // "mse", "mse x 1.1 + scaling + bias correction"
  double held_out_sqnr_db = 0;
  bool chosen = false;
  double seconds = 0;
  bool refused = false;  // not the float function even before quantization: no score
};

struct QuantizeOutcome {
  Graph source;  // the float graph of the plan: transformed, biases corrected
  quant::Plan plan;
  Graph quantized;
  std::vector<RangeChoice> ranges;          // by plan.activations: expected error and clipping
  std::vector<TensorStats> stats;           // by plan.activations; of dynamic ones only the name
  std::vector<ScoredCandidate> candidates;  // empty when nothing was scored
  std::vector<ScaledValue> scaled;
  std::vector<LowRankLayer> low_rank;
  std::vector<ReachedLayer> reached;  // in the order of the layers
  std::vector<std::string> notes;     // what could not be done, by layer
  int biases_corrected = 0;
  double scoring_seconds = 0;  // of the whole, spent on drift evaluations
};

// Whether method `auto` weighs weight errors by what they do to layer outputs (Gram matrices, every weight
// method): where some such layer is coarse (not eight-bit integers), or where activations have more than
// eight bits or none, so that weights make all of the error. Eight-bit weights beside eight-bit activations
// make the smaller part: they wait until all else is chosen and measured.
bool auto_weighs_outputs(const quant::Placement& placement);

// Error kUsage when a method needs data and there is none.
QuantizeOutcome quantize_model(const QuantizeInput& input, const QuantizeChoices& choices);

}  // namespace pare
