#include "recipes/quantize/quantize_model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <list>
#include <map>
#include <optional>
#include <set>

#include "engine/base/error.h"
#include "engine/numeric/table.h"
#include "quant/placement/activation.h"
#include "quant/transform/rotation.h"
#include "quant/transform/scale_group.h"
#include "recipes/quantize/bias_step.h"
#include "recipes/quantize/held_out.h"
#include "recipes/quantize/layer_journal.h"
#include "recipes/quantize/variant.h"

namespace pare {
bool auto_weighs_outputs(const quant::Placement& placement) {
  const auto coarse = [](const quant::Format& format) {
    const FormatInfo& info = format_info(format.dtype);
    return !info.is_integer() || info.bits < 8 || format.bits != 0;
  };
  const bool narrow_inputs =
      std::any_of(placement.activations.begin(), placement.activations.end(),
                  [](const quant::ActivationSite& site) { return format_info(site.format.dtype).bits <= 8; });
  return std::any_of(placement.weights.begin(), placement.weights.end(), [&](const quant::WeightSite& site) {
    return site.method == "auto" && (coarse(site.format) || !narrow_inputs);
  });
}

namespace {

constexpr std::uint64_t kRotationSeed = 1;
// Better codes of weights that make a quarter of the error gain 1.2 dB at most.
constexpr double kWeightsShare = 0.25;
constexpr double kCancelDb = 1;

bool any_site(const quant::Placement& placement, bool (*wanted)(const std::string& method)) {
  return std::any_of(placement.weights.begin(), placement.weights.end(),
                     [&](const quant::WeightSite& site) { return wanted(site.method); });
}

bool is_auto(const std::string& method) { return method == "auto"; }
bool is_low_rank(const std::string& method) { return method == "low_rank"; }
bool is_scaling(const std::string& method) { return method != "auto" && scales_channels(method); }
bool needs_data(const std::string& method) { return wants_grams(method) || is_scaling(method); }

class Flow {
 public:
  Flow(const QuantizeInput& input, const QuantizeChoices& choices)
      : in_(input),
        choices_(choices),
        methods_(choices.calibrator, choices.percentiles),
        maker_(in_, choices_, methods_),
        held_out_(in_) {}

  QuantizeOutcome run() {
    PARE_ASSERT(in_.graph != nullptr && in_.pool != nullptr);
    quant::check(choices_.spec);
    if (in_.given != nullptr) check_given();
    const QuantVariant& base = base_variant();
    const bool automatic = any_site(base.placement, is_auto) && in_.calibration != nullptr;
    const bool ranged =
        std::any_of(base.stats.begin(), base.stats.end(), [](const TensorStats* s) { return s != nullptr; });
    const bool correct = in_.calibration != nullptr && choices_.bias_correction.value_or(automatic);
    QuantCandidate first = maker_.candidate(base, methods_.first());
    if (in_.given != nullptr || !held_out_.has_samples() ||
        !(automatic || correct || (ranged && methods_.several()))) {
      if (choices_.inputs == "quantized") follow_inputs(first);
      if (correct && choices_.bias_correction) correct_biases(first, in_);
      best_ = std::move(first);
      finish();
      return std::move(out_);
    }
    consider(std::move(first), correct);
    if (automatic) improve(base, correct);
    if (ranged && methods_.several()) try_calibrators(correct);
    if (automatic) try_layer_outputs(correct);
    if (choices_.inputs == "quantized") {
      QuantCandidate next = best_;
      follow_inputs(next);
      consider(std::move(next), false);
    }
    finish();
    return std::move(out_);
  }

 private:
  void check_given() const {
    for (const quant::ActivationSite& site : quant::place(*in_.graph, choices_.spec).activations)
      if (!site.format.dynamic &&
          (!site.format.symmetric || site.format.granularity != quant::Granularity::kTensor))
        throw make_error(ErrorCode::kUsage,
                         "a calibration cache holds one symmetric scale a tensor, not what {} needs",
                         quant::to_string(site.format))
            .hint("scheme int8 or fp8");
  }

  // What was asked for by name is done whatever it scores.
  const QuantVariant& base_variant() {
    auto stats = std::make_shared<const std::vector<TensorStats>>(in_.stats);
    Graph rotated;
    quant::RotationResult rotation;
    if (choices_.rotate) {
      rotated = *in_.graph;
      rotation = quant::rotate(rotated, kRotationSeed);
      notes_.insert(notes_.end(), rotation.notes.begin(), rotation.notes.end());
      if (rotation.streams + rotation.attentions == 0)
        notes_.push_back("rotation: the model has no stream and no attention that could be rotated");
    }
    const quant::Placement placement = maker_.place(choices_.rotate ? rotated : *in_.graph, *stats);
    if (in_.calibration == nullptr && any_site(placement, needs_data)) {
      for (const quant::WeightSite& site : placement.weights)
        if (needs_data(site.method))
          throw make_error(ErrorCode::kUsage,
                           "method {} needs calibration data: it looks at the layers' inputs", site.method)
              .at(fmt::format("weight '{}'", value_label(*in_.graph, site.path, site.value)))
              .hint("give calibrate.data (--data), or method search");
    }
    VariantMaker::Source source;
    source.graph = choices_.rotate ? std::move(rotated) : *in_.graph;
    source.placement = placement;
    source.statistics = stats;
    for (const ValueId id : rotation.changed) source.changed.push_back({{}, id});
    if (in_.calibration != nullptr && (any_site(placement, wants_grams) || auto_is_coarse(placement))) {
      source.grams =
          in_.grams != nullptr && !choices_.rotate ? *in_.grams : collect_grams(source.graph, placement);
      if (in_.calibration->has_tokens())
        out_.reached = reached_layers(source.graph, placement, source.grams, notes_);
    }
    std::vector<ScaledValue> scaled;
    std::vector<std::string> notes;
    if (any_site(placement, is_scaling) || !choices_.scaling.empty()) {
      // Layers of method auto wait for their turn.
      quant::Placement asked = placement;
      for (quant::WeightSite& site : asked.weights)
        if (!choices_.scaling.empty())
          site.method = choices_.scaling;
        else if (is_auto(site.method))
          site.method = "search";
      ScaleResult result = scale(source.graph, asked, *stats, source.grams);
      scaled = result.scaled;
      notes = result.notes;
      take(std::move(result), source);
      for (std::size_t i = 0; i < std::min(source.placement.weights.size(), placement.weights.size()); ++i)
        source.placement.weights[i].method = placement.weights[i].method;
    }
    LowRankResult low_rank;
    if (any_site(placement, is_low_rank)) {
      low_rank = add_low_rank(source.graph, source.placement, source.grams, choices_.rank, choices_.solve,
                              *in_.pool);
      source.graph = low_rank.graph;
      source.low_rank = &low_rank;
    }
    if (!scaled.empty() || !low_rank.codes.empty() || !rotation.changed.empty())
      held_out_.check_unchanged(source.graph, "a transform before quantization");
    QuantVariant v = maker_.make(std::move(source), true);
    v.scaled = std::move(scaled);
    v.notes.insert(v.notes.end(), notes.begin(), notes.end());
    return keep(std::move(v));
  }

  LayerGrams collect_grams(const Graph& graph, const quant::Placement& placement) const {
    return choices_.objective == "model"
               ? LayerGrams::collect_gradients(graph, placement, *in_.calibration, *in_.pool, in_.progress)
               : LayerGrams::collect(graph, placement, *in_.calibration, *in_.pool, in_.progress);
  }

  bool auto_is_coarse(const quant::Placement& placement) const {
    return held_out_.has_samples() && auto_weighs_outputs(placement);
  }

  const QuantVariant& keep(QuantVariant v) {
    variants_.push_back(std::move(v));
    return variants_.back();
  }

  // The scaled graph in place of the one before.
  void take(ScaleResult result, VariantMaker::Source& source) const {
    source.placement = result.replace ? maker_.place(result.graph, *source.statistics) : result.placement;
    source.graph = std::move(result.graph);
    source.grams = std::move(result.grams);
    source.changed.insert(source.changed.end(), result.changed.begin(), result.changed.end());
  }

  ScaleResult scale(const Graph& graph, const quant::Placement& placement,
                    const std::vector<TensorStats>& stats, const LayerGrams& grams,
                    const std::set<std::string>& leave = {}) const {
    ScaleInput input;
    input.graph = &graph;
    input.placement = &placement;
    input.stats = &stats;
    input.grams = &grams;
    input.calibration = in_.calibration;
    input.pool = in_.pool;
    input.progress = in_.progress;
    input.strength = choices_.alpha;
    input.folded_only = choices_.folded_only;
    input.leave = leave;
    return scale_layers(input);
  }

  // Method auto: codes by output error, then channel factors, each as a variant of its own.
  void improve(const QuantVariant& base, bool correct) {
    const bool layer_wise = !base.grams.empty();
    if (layer_wise) {
      QuantVariant v = maker_.layer_wise(base);
      v.what = " + layer-wise codes";
      consider(maker_.candidate(keep(std::move(v)), methods_.first()), correct);
    }
    ScaleResult result = faithful_scaling(base);
    if (result.scaled.empty()) return;
    std::vector<ScaledValue> list = result.scaled;
    std::vector<std::string> notes = result.notes;
    VariantMaker::Source source;
    source.statistics = base.statistics;
    source.changed = base.changed;
    take(std::move(result), source);
    QuantVariant v = maker_.make(std::move(source), true);
    v.what = " + scaling";
    v.scaled = std::move(list);
    v.notes = std::move(notes);
    const QuantVariant& scaled = keep(std::move(v));
    consider(maker_.candidate(scaled, methods_.first()), correct);
    if (!layer_wise) return;
    QuantVariant both = maker_.layer_wise(scaled);
    both.what = " + scaling + layer-wise codes";
    consider(maker_.candidate(keep(std::move(both)), methods_.first()), correct);
  }

  // Channel factors nobody asked for by name: places where they change the float outputs (chaotic arithmetic
  // behind them, or a fault of ours) are left out and said.
  ScaleResult faithful_scaling(const QuantVariant& base) {
    ScaleResult result = scale(base.graph, base.placement, *base.statistics, base.grams);
    if (result.scaled.empty() || held_out_.unchanged(result.graph)) return result;
    out_.candidates.push_back({out_.candidates.front().name + " + scaling", 0, false, 0, true});
    std::set<std::string> left;
    std::string names;
    for (std::size_t i = 0; i < result.moves.size(); ++i) {
      Graph alone = base.graph;
      result.moves[i](alone);
      if (held_out_.unchanged(alone) || !left.insert(result.scaled[i].tensor).second) continue;
      names += fmt::format("{}'{}'", names.empty() ? "" : ", ", result.scaled[i].tensor);
    }
    if (!left.empty()) {
      result = scale(base.graph, base.placement, *base.statistics, base.grams, left);
      if (result.scaled.empty() || held_out_.unchanged(result.graph)) {
        notes_.push_back("channel factors would change the float outputs, and were left out, at " + names);
        return result;
      }
    }
    notes_.push_back("channel factors would change the float outputs: none were moved");
    result.scaled.clear();
    return result;
  }

  void try_calibrators(bool correct) {
    const QuantVariant& variant = *best_.variant;
    QuantCandidate uniform;
    for (const std::string& method : methods_.names()) {
      if (method == methods_.first()) continue;
      QuantCandidate next = maker_.candidate(variant, method);
      score(next);
      if (uniform.variant == nullptr || next.score > uniform.score) uniform = std::move(next);
    }
    // Bias correction raises them all; the best of the others deserves it too.
    if (uniform.variant != nullptr) consider(std::move(uniform), correct, true);
  }

  // The best choice with its activations, or its weights, left float. Biases as given: the float model's, or
  // corrected for both.
  double score_half(const Graph& graph, bool with_weights) {
    quant::Plan plan = best_.plan;
    if (with_weights) {
      plan.activations.clear();
      plan.placement.activations.clear();
    } else {
      plan.weights.clear();
      plan.placement.weights.clear();
    }
    return held_out_.score(quant::apply(graph, plan));
  }

  // Can other codes of eight-bit weights make a difference? Where the weights alone make a good part of the
  // error, unless the model would be worse with float ones (errors that cancel).
  bool weights_matter() {
    const double without = score_half(best_.variant->graph, false);
    if (!(without >= best_.score - kCancelDb)) return false;
    const double alone = score_half(best_.graph, true);
    return std::pow(10.0, (best_.score - alone) / 10) >= kWeightsShare;
  }

  // Eight-bit weights beside eight-bit activations: codes by layer outputs for the best choice so far.
  void try_layer_outputs(bool correct) {
    const QuantVariant& v = *best_.variant;
    if (!v.grams.empty() || v.placement.activations.empty() || !any_site(v.placement, is_auto)) return;
    if (!weights_matter()) return;
    QuantVariant weighed = maker_.layer_wise(v);
    weighed.what += " + layer-wise codes";
    consider(maker_.candidate(keep(std::move(weighed)), best_.calibrator), correct);
  }

  // The weights again, each for the input that the quantized layers before it give.
  void follow_inputs(QuantCandidate& c) {
    if (in_.calibration == nullptr)
      throw make_error(ErrorCode::kUsage, "inputs: quantized needs calibration data")
          .hint("give calibrate.data (--data)");
    InOrderOptions options = choices_.in_order;
    options.grams = &c.variant->grams;
    options.solve = choices_.solve;
    Progress& progress = in_.progress != nullptr ? *in_.progress : no_progress();
    c.plan.weights = solve_in_order(c.graph, c.plan, *in_.calibration, options, progress, *in_.pool);
    c.label += " + quantized inputs";
  }

  void score(QuantCandidate& c) {
    const auto start = std::chrono::steady_clock::now();
    // The recipe and the statistics decide what a label means.
    std::optional<double> known;
    if (in_.journal != nullptr) known = in_.journal->score(c.label);
    {
      ProgressStep step(in_.progress != nullptr ? *in_.progress : no_progress(),
                        fmt::format("candidate {} ({})", out_.candidates.size() + 1, c.label), 1);
      c.score = known ? *known : held_out_.score(quant::apply(c.graph, c.plan));
      step.advance(1);
    }
    if (in_.journal != nullptr && !known) in_.journal->keep_score(c.label, c.score);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    out_.candidates.push_back({c.label, c.score, false, seconds});
  }

  void keep_if_better(QuantCandidate c) {
    if (best_.variant == nullptr || c.score > best_.score) best_ = std::move(c);
  }

  // Scores a choice (unless that was done), then the same with corrected biases; the best so far is kept.
  void consider(QuantCandidate c, bool correct, bool scored = false) {
    if (!scored) score(c);
    QuantCandidate corrected = c;
    keep_if_better(std::move(c));
    if (!correct) return;
    correct_biases(corrected, in_);
    if (corrected.biases == 0) return;
    corrected.label += " + bias correction";
    score(corrected);
    keep_if_better(std::move(corrected));
  }

  // A changed value is not the source model's value of that name any more: under a name of its own nobody
  // compares the two.
  static void rename_changed(const QuantVariant& v, Graph& whole) {
    for (const auto& [path, id] : v.changed) {
      Graph& graph = own_subgraph_at(whole, path);
      if (graph.is_output(id) || graph.value(id).producer == NodeId::kNone) continue;
      if (!graph.value(id).origin.empty() || graph.value(id).name.find("_scaled") == std::string::npos)
        graph.rename(id, graph.value(id).name + "_scaled");
      graph.value(id).origin.clear();
    }
  }

  void finish() {
    const QuantVariant& v = *best_.variant;
    out_.plan = std::move(best_.plan);
    out_.source = std::move(best_.graph);
    out_.biases_corrected = best_.biases;
    out_.scaled = v.scaled;
    out_.low_rank = v.low_rank;
    out_.notes = v.notes;
    out_.notes.insert(out_.notes.end(), notes_.begin(), notes_.end());
    out_.scoring_seconds = held_out_.seconds();
    for (ScoredCandidate& c : out_.candidates) c.chosen = !c.refused && c.name == best_.label;
    out_.ranges = best_.ranges;
    for (std::size_t i = 0; i < v.stats.size(); ++i) {
      out_.stats.push_back(v.stats[i] != nullptr ? *v.stats[i] : TensorStats());
      if (v.stats[i] == nullptr)
        out_.stats.back().name =
            value_label(v.graph, v.placement.activations[i].path, v.placement.activations[i].value);
    }
    rename_changed(v, out_.source);
    out_.quantized = quant::apply(out_.source, out_.plan);
  }

  const QuantizeInput& in_;
  const QuantizeChoices& choices_;
  RangeMethods methods_;
  VariantMaker maker_;
  HeldOut held_out_;
  QuantizeOutcome out_;
  std::list<QuantVariant> variants_;  // candidates point into it
  QuantCandidate best_;
  std::vector<std::string> notes_;
};

}  // namespace

QuantizeOutcome quantize_model(const QuantizeInput& input, const QuantizeChoices& choices) {
  return Flow(input, choices).run();
}

}  // namespace pare
