// Scales and codes of every weight of a placement, each by the method that its layer asks for.
//
//   rtn, search, local_hessian, gptq, learned   quant/rounding/layer.h
//   awq          the better of AWQ's clipped ranges (quant/grid/clip_search.h) and a searched grid
//   smoothquant, equalize   a searched grid: what they are about was done before
//   auto         what has the least output error on held-out samples, where there are moments of the layer's
//                input; else a searched grid
//
// Weights that a runtime fuses share what it needs shared. Layers go through the journal, one unit at a time.
#pragma once

#include <string>
#include <vector>

#include "quant/plan.h"
#include "quant/rounding/layer.h"
#include "recipes/quantize/layer_grams.h"
#include "recipes/quantize/layer_journal.h"

namespace pare {

struct SolveOptions {
  bool searched = false;      // layers of method auto: a searched grid, whatever is known of their inputs
  quant::LayerOptions layer;  // damp, order ...; its method is the site's
};

// By placement.weights. `journal` may be null.
std::vector<quant::WeightPlan> solve_weights(const Graph& graph, const quant::Placement& placement,
                                             const LayerGrams& grams, const SolveOptions& options,
                                             LayerJournal* journal, Progress& progress, ThreadPool& pool);

// The same for layers whose matrices are collected on the way, a part of the layers at a time: those of a
// part take at most kGramPartBytes together, one unit of layers whatever it takes.
inline constexpr std::int64_t kGramPartBytes = std::int64_t{64} << 20;
std::vector<quant::WeightPlan> solve_weights_in_parts(const Graph& graph, const quant::Placement& placement,
                                                      Dataset& data, const SolveOptions& options,
                                                      LayerJournal* journal, Progress& progress,
                                                      ThreadPool& pool);
// Weights of each part, as indices of placement.weights.
std::vector<std::vector<std::size_t>> gram_parts(const Graph& graph, const quant::Placement& placement,
                                                 const Dataset& data);
// A placement of nothing but these weights, whole fused groups of them.
quant::Placement part_of(const quant::Placement& placement, const std::vector<std::size_t>& weights);

// What solving the largest layer takes beside its weight's rows and its matrices: dense matrices, a factor,
// codes.
double solve_bytes(const Graph& graph, const quant::Placement& placement);

// One weight, given as rows (which may differ from the graph's: low-rank corrections). `global`: of fused
// layers in a two-level format; 0: its own.
struct SolvedRows {
  quant::Grid grid;
  std::vector<std::uint8_t> codes;
  bool nearest = true;
  quant::LayerRecord record;
};
SolvedRows solve_rows(const std::string& name, const quant::WeightSite& site, const quant::WeightRows& rows,
                      const GramPair* grams, float global, const SolveOptions& options, ThreadPool& pool);

// The site as it is solved: one scale for the whole tensor still has a row for each output.
quant::WeightSite row_site(quant::WeightSite site);

// Does a method need moments of the layers' inputs?
bool wants_grams(const std::string& method);

}  // namespace pare
