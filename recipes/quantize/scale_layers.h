// Moves factors a channel between activations and weights, wherever the loss of the layers falls by it.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "calib/tensor_stats.h"
#include "datasets/dataset.h"
#include "engine/base/progress.h"
#include "quant/placement/placement.h"
#include "quant/transform/scale_search.h"
#include "recipes/quantize/layer_grams.h"

namespace pare {

struct ScaledValue {
  std::string tensor, family;  // the value as the source calls it; "smoothquant", "awq duo" ...
  double strength = 0, predicted_gain_db = 0;
  bool folded = true;  // false: a Mul of its own
};

struct ScaleInput {
  const Graph* graph = nullptr;
  const quant::Placement* placement = nullptr;      // of the graph
  const std::vector<TensorStats>* stats = nullptr;  // sorted by name; maxima a channel where it has them
  const LayerGrams* grams = nullptr;
  Dataset* calibration = nullptr;
  ThreadPool* pool = nullptr;
  Progress* progress = nullptr;
  std::optional<double> strength;  // of method smoothquant
  bool folded_only = false;        // no Mul of its own, no shifts: for files that hold no operators
  std::set<std::string> leave;     // values (ScaledValue::tensor) that stay as they are
};

struct ScaleResult {
  Graph graph;
  quant::Placement placement;       // of the new graph: a Mul's output is quantized in place of its input
  LayerGrams grams;                 // of the new graph
  std::vector<ValuePlace> changed;  // values that are not what they were
  bool replace = false;             // Clip became other operators: the placement must be made anew
  std::vector<ScaledValue> scaled;  // empty: nothing was worth it, the graph is as it was
  std::vector<std::function<void(Graph&)>> moves;  // of `scaled`, each alone on the graph that was given
  std::vector<std::string> notes;                  // candidates without a finite loss, by layer
};

// By the method of each layer's weight: smoothquant, awq, equalize; auto tries all three.
ScaleResult scale_layers(const ScaleInput& input);

// Does a method move factors?
bool scales_channels(const std::string& method);

}  // namespace pare
