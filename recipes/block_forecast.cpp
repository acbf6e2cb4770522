#include <algorithm>
#include <chrono>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/memory.h"
#include "eval/evaluate.h"
#include "graphsurgeon/block_cut.h"
#include "quant/placement/activation.h"
#include "quant/placement/rules.h"
#include "recipes/blocks/journal_size.h"
#include "recipes/blocks/quantize_blocks.h"
#include "recipes/forecast.h"
#include "recipes/stages.h"

namespace pare {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// What method auto scores for a block: codes, channel factors, both, each with biases corrected.
constexpr double kAutoCandidates = 6;
// Counting values beside the float pass.
constexpr double kCollect = 1.4;
// Copies of a layer's weight while it is solved: rows, codes, what they mean, what is left of the error.
constexpr double kLayerCopies = 17;  // bytes an element
// An element of the layer's matrix. GPTQ, AWQ: dense, the factor, the packed half of it, the loss's own or
// half of that. Learned rounding: its copy. Method auto besides: held-out ones, and where channel factors
// changed them both matrices again.
constexpr double kMatrixBytes = 12, kLearnedMatrixBytes = 17, kAutoMatrixBytes = 28;
// What a block holds of its weights while it is solved: themselves, and packed for products.
constexpr double kBlockCopies = 2;
// A model of less than kStreamedWeights is written as one message: its tensors, and the bytes of all.
constexpr double kMessageCopies = 2;
// Copies of the weights in evaluation: float, lowered and packed, of both models.
constexpr double kEvaluated = 16;

struct Linear {
  double ins = 0, outs = 0;
  bool quantized = false;
};

std::vector<Linear> layers_of(const Graph& graph, const GraphBlock& block, const quant::RuleBook& rules) {
  std::vector<Linear> layers;
  for (const NodeId id : block.nodes) {
    const Node& node = graph.node(id);
    if (!node.is("MatMul") && !node.is("Gemm")) continue;
    const Shape& shape = graph.value(node.in.at(1)).shape;
    if (shape.rank() != 2 || !shape.concrete()) continue;
    layers.push_back({static_cast<double>(shape.dims[0].value), static_cast<double>(shape.dims[1].value),
                      rules.resolve(graph, node).quantize});
  }
  return layers;
}

// Outputs of a batch, of both models and as one is compared: logits are wide.
constexpr double kOutputCopies = 3;
double output_bytes(const Graph& graph, const Dataset& data) {
  double bytes = 0;
  for (const ValueId id : graph.outputs) {
    double one = kOutputCopies * 4;
    const Shape& shape = graph.value(id).shape;
    for (std::size_t d = 1; d < shape.dims.size(); ++d) {
      const Shape& input = data.inputs().at(0).shape;
      const bool as_input = !shape.dims[d].known() && d < input.dims.size();
      one *= static_cast<double>(std::max<std::int64_t>(1, (as_input ? input : shape).dims[d].value));
    }
    bytes += one * static_cast<double>(data.batch_size());
  }
  return bytes;
}

double matrix_bytes(const quant::Spec& spec) {
  double most = kMatrixBytes;
  const auto add = [&](const std::string& method) {
    if (method == "learned") most = std::max(most, kLearnedMatrixBytes);
    if (method == "auto") most = std::max(most, kAutoMatrixBytes);
  };
  add(spec.method);
  for (const quant::Rule& rule : spec.rules)
    if (rule.method) add(*rule.method);
  return most;
}

struct Rehearsal {
  double forward = 0, moments = 0;  // seconds a sample, of the first block
  double solve = 0;                 // seconds a unit of work (work_of)
  double matrices = 0;              // bytes of those that are held while layers are solved
};

double work_of(double rows, double ins, bool squared) { return rows * ins * (squared ? ins : 1); }

Rehearsal rehearse(const Graph& part, const QuantizeChoices& choices, Dataset& data, ThreadPool& pool) {
  Rehearsal result;
  EvaluateOptions options;
  options.pool = &pool;
  const auto samples = static_cast<double>(data.sample_count());
  const SampleRange all{0, data.sample_count()};
  collect_outputs(part, data, all, options);
  Clock::time_point start = Clock::now();
  collect_outputs(part, data, all, options);
  result.forward = since(start) / samples;
  quant::Placement placement = quant::place(part, choices.spec);
  if (placement.weights.empty()) return result;
  const bool with_moments = std::any_of(
      placement.weights.begin(), placement.weights.end(),
      [](const quant::WeightSite& site) { return wants_grams(site.method) || site.method == "auto"; });
  LayerGrams grams;
  if (with_moments) {
    start = Clock::now();
    grams = LayerGrams::collect(part, placement, data, pool, nullptr);
    result.moments = since(start) / samples;
    result.matrices = static_cast<double>(LayerGrams::forecast(part, placement, data).held);
  }
  const auto size = [&](const quant::WeightSite& site) {
    return subgraph_at(part, site.path).value(site.value).constant.size();
  };
  const auto least = std::min_element(placement.weights.begin(), placement.weights.end(),
                                      [&](const auto& a, const auto& b) { return size(a) < size(b); });
  quant::Placement unit;
  unit.weights = {*least};
  unit.weights[0].fused = -1;
  start = Clock::now();
  solve_weights(part, unit, grams, choices.solve, nullptr, no_progress(), pool);
  const Dims& dims = subgraph_at(part, least->path).value(least->value).constant.dims();
  const double rows = static_cast<double>(dims.at(static_cast<std::size_t>(least->axis)));
  const double ins = static_cast<double>(size(*least)) / rows;
  result.solve = since(start) / work_of(rows, ins, with_moments);
  return result;
}

}  // namespace

Forecast forecast_blocks(RunState& state) {
  const Recipe& r = state.recipe();
  const Graph& graph = state.structure();
  const std::vector<GraphBlock> blocks = find_blocks(graph);
  Forecast forecast;
  forecast.anonymous_bytes = static_cast<double>(current_anonymous_bytes());
  if (blocks.empty()) return forecast;  // the stage says it
  const QuantizeChoices choices = fitted_choices(r);
  const CalibrationSplit split = state.split();
  const double before = static_cast<double>(current_anonymous_bytes());
  const std::int64_t count = std::max(split.samples, split.holdout.end);
  const std::unique_ptr<Dataset> whole = state.calibration_data(count);
  const std::int64_t batch =
      whole->fixed_batch() > 0 ? whole->fixed_batch() : std::min<std::int64_t>(whole->batch_size(), 8);
  Rehearsal one;
  std::int64_t width = 0;  // elements of a sample between blocks
  {
    const Graph part = extract_block(graph, blocks[0], state.pool());
    DatasetSpec spec = resolved_dataset(r, r.calibrate->data);
    spec.samples = batch;
    Dataset data(spec, model_inputs(part));
    one = rehearse(part, choices, data, state.pool());
    EvaluateOptions options;
    options.pool = &state.pool();
    const BatchOutputs outputs = collect_outputs(part, data, {0, 1}, options);
    for (const Tensor& output : outputs.at(0)) width += output.size();
  }
  const quant::RuleBook rules(choices.spec);
  const double matrix = matrix_bytes(choices.spec);
  double products = 0, first = 0, solving = 0, weights = 0, layer_bytes = 0;
  std::int64_t most = 0;
  const bool squared = one.moments > 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (const Linear& layer : layers_of(graph, blocks[i], rules)) {
      products += layer.ins * layer.outs;
      first += i == 0 ? layer.ins * layer.outs : 0;
      weights += 4 * layer.ins * layer.outs;
      if (!layer.quantized) continue;
      solving += work_of(layer.outs, layer.ins, squared) * one.solve;
      layer_bytes = std::max(layer_bytes, kLayerCopies * layer.ins * layer.outs +
                                              (squared ? matrix * layer.ins * layer.ins : 0));
    }
    // What stays float as a whole is never widened (stays_float): the head, as a rule.
    if (!stays_float(graph, blocks[i], choices, state.pool()))
      most = std::max(most, block_weight_bytes(graph, blocks[i]));
  }
  const double ratio = first > 0 ? products / first : static_cast<double>(blocks.size());
  const double samples = static_cast<double>(split.samples);
  const double held_out = static_cast<double>(split.holdout.end - split.holdout.begin);
  const bool automatic = choices.spec.method == "auto";
  double passes = one.forward * static_cast<double>(count) + one.moments * std::min(samples, 128.0) +
                  one.forward * held_out * (automatic ? kAutoCandidates : 0);
  if (quant::needs_statistics(choices.spec)) passes += kCollect * one.forward * samples;
  forecast.seconds = 1 + ratio * passes + solving;
  if (r.evaluate) {
    const Dataset data(resolved_dataset(r, r.evaluate->data), model_inputs(graph));
    const double judged = static_cast<double>(data.sample_count());
    const double layers = std::min(judged, static_cast<double>(r.evaluate->layer_samples));
    forecast.seconds += ratio * one.forward * (2 * judged + 2 * layers);
  }
  const auto more =
      static_cast<double>(std::max<std::int64_t>(0, most - block_weight_bytes(graph, blocks[0])));
  const double rehearsed = static_cast<double>(peak_anonymous_bytes()) - before;
  const double sample_bytes =
      static_cast<double>(width) * (r.quantize->blocks->activations == "bfloat16" ? 2 : 4);
  double activations = sample_bytes * static_cast<double>(count);
  if (activations > static_cast<double>(r.quantize->blocks->memory) * 1048576) activations = 0;
  // A head with codes computes logits while its matrix is collected.
  const bool wide = !stays_float(graph, blocks.back(), choices, state.pool());
  const double collecting =
      rehearsed + more * kBlockCopies + (wide ? output_bytes(graph, *whole) / kOutputCopies : 0);
  const double solved = static_cast<double>(most) + one.matrices + layer_bytes;
  const double quantizing = before + activations + std::max(collecting, solved);
  const auto model = static_cast<double>(disk_need(graph, blocks, choices.spec).model);
  const double writing =
      before + (model > static_cast<double>(kStreamedWeights) ? 0 : kMessageCopies * model);
  const double evaluating = r.evaluate ? before + weights / 4 * kEvaluated + output_bytes(graph, *whole) : 0;
  forecast.anonymous_bytes = std::max({quantizing, writing, evaluating}) + kKeptByArenas;
  return forecast;
}

}  // namespace pare
