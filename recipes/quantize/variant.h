// One float graph with everything that is needed to write it quantized, whatever ranges are chosen: places,
// codes of the weights, ranges of the activations by every method.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "calib/tensor_stats.h"
#include "quant/plan.h"
#include "recipes/quantize/layer_grams.h"
#include "recipes/quantize/low_rank_layers.h"
#include "recipes/quantize/quantize_model.h"
#include "recipes/quantize/range_methods.h"
#include "recipes/quantize/scale_layers.h"
#include "recipes/quantize/solve_weights.h"

namespace pare {

using StatsList = std::shared_ptr<const std::vector<TensorStats>>;  // sorted by name

struct QuantVariant {
  std::string what;  // behind a candidate's name: " + scaling"
  Graph graph;
  quant::Placement placement;
  std::vector<quant::WeightPlan> weights;
  LayerGrams grams;
  StatsList statistics;
  std::vector<const TensorStats*> stats;                        // by activation; nullptr: scales at run time
  std::vector<std::shared_ptr<const TensorStats>> group_stats;  // of those that share a range
  std::vector<std::vector<RangeChoice>> ranges;                 // by activation: every method
  std::vector<ValuePlace> changed;  // not what the source model computes under these names
  std::vector<ScaledValue> scaled;
  std::vector<LowRankLayer> low_rank;
  std::vector<std::string> notes;
};

// A complete choice, and how it scored.
struct QuantCandidate {
  const QuantVariant* variant = nullptr;
  std::string label, calibrator;
  double score = 0;
  Graph graph;  // the variant's, biases corrected or not
  quant::Plan plan;
  std::vector<RangeChoice> ranges;  // by activation
  int biases = 0;                   // corrected
};

class VariantMaker {
 public:
  VariantMaker(const QuantizeInput& input, const QuantizeChoices& choices, const RangeMethods& methods)
      : in_(input), choices_(choices), methods_(methods) {}

  // Places of a graph; branches that the data never took are left float.
  quant::Placement place(const Graph& graph, const std::vector<TensorStats>& stats) const;

  // A graph with its placement. Statistics of `changed` values, and of new ones, are collected again; Error
  // kUsage when others are missing. `low_rank`: products that are in the graph already.
  struct Source {
    Graph graph;
    quant::Placement placement;
    StatsList statistics;
    LayerGrams grams;
    std::vector<ValuePlace> changed;
    const LowRankResult* low_rank = nullptr;
  };
  // `searched`: SolveOptions.
  QuantVariant make(Source source, bool searched) const;

  // The same with the weights of `auto` layers solved by their output error.
  // Without Gram matrices they are collected for it, a part of the layers at a time, and not kept.
  QuantVariant layer_wise(const QuantVariant& searched) const;

  QuantCandidate candidate(const QuantVariant& variant, const std::string& calibrator) const;

 private:
  void collect_changed(QuantVariant& v) const;
  void find_stats(QuantVariant& v) const;
  quant::ActivationPlan activation(const QuantVariant& v, std::size_t i, const RangeChoice& range) const;

  const QuantizeInput& in_;
  const QuantizeChoices& choices_;
  const RangeMethods& methods_;
};

const TensorStats* find_stats(const std::vector<TensorStats>& stats, const std::string& name);

}  // namespace pare
