#include "recipes/plan_report.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/numeric/table.h"
#include "eval/report_render.h"
#include "recipes/blocks/quantize_blocks.h"

namespace pare {
namespace {

constexpr int kPlotBins = 64;  // a side

std::string granularity_text(const quant::Format& format) {
  std::string text = quant::name(format.granularity);
  if (format.block > 0 && format.rows > 1)
    text += fmt::format(" of {}x{}", format.rows, format.block);
  else if (format.block > 0)
    text += fmt::format(" of {}", format.block);
  return text;
}

void report_weights(Report& report, const QuantizeOutcome& o) {
  for (std::size_t i = 0; i < o.plan.weights.size(); ++i) {
    const quant::WeightSite& site = o.plan.placement.weights[i];
    const quant::WeightPlan& weight = o.plan.weights[i];
    ReportQuantized row;
    row.tensor = value_label(o.source, site.path, site.value);
    row.kind = "weight";
    row.format = name(site.format.dtype);
    row.granularity = granularity_text(site.format);
    row.method = weight.record.method;
    row.scales = weight.scales.size();
    row.sqnr_db = weight.sqnr_db;
    row.clipped = weight.clipped;
    report.quantized.push_back(std::move(row));
  }
}

void report_activation(Report& report, const QuantizeOutcome& o, std::size_t i) {
  const quant::ActivationSite& site = o.plan.placement.activations[i];
  const quant::ActivationPlan& activation = o.plan.activations[i];
  const FormatInfo& format = format_info(site.format.dtype);
  ReportQuantized row;
  row.tensor = value_label(o.source, site.path, site.value);
  row.kind = "activation";
  row.format = name(site.format.dtype);
  row.granularity = quant::name(site.format.granularity);
  row.method = activation.range.method;
  row.rule = site.rule;
  row.scales = std::max<std::int64_t>(1, static_cast<std::int64_t>(activation.channel_scales.size()));
  if (site.format.dynamic) {
    report.quantized.push_back(std::move(row));
    return;
  }
  // With two levels (NVFP4) the scale is that of all blocks, and a block's own goes up to the largest E4M3.
  const bool two_levels =
      site.format.dtype == DType::kE2M1 && site.format.granularity == quant::Granularity::kBlock;
  const double scale =
      static_cast<double>(activation.scale) * (two_levels ? format_info(DType::kE4M3FN).largest : 1);
  row.low = (format.lowest() - activation.zero_point) * scale;
  row.high = (format.largest - activation.zero_point) * scale;
  if (i < o.stats.size()) {
    ReportHistogram h = plot_histogram(o.stats[i]);
    h.method = row.method;
    h.low = row.low;
    h.high = row.high;
    report.histograms.push_back(std::move(h));
  }
  report.quantized.push_back(std::move(row));
}

void warn_about(Report& report, const TensorStats& s) {
  const std::uint64_t inf = s.positive_inf + s.negative_inf;
  if (s.nan + inf > 0)
    report.warnings.push_back(
        fmt::format("tensor '{}' held {} NaN and {} infinite values in calibration: they count in no range",
                    s.name, s.nan, inf));
  else if (s.seen() && s.amax() == 0)
    report.warnings.push_back(
        fmt::format("tensor '{}' was all zeros in calibration: its scale is 1", s.name));
}

void report_candidates(Report& report, const QuantizeOutcome& o) {
  if (o.candidates.empty()) return;
  ReportTable table;
  table.title = "Candidates";
  table.note =
      "calibrators (mse: for each tensor the range of least expected error), codes by output error, channel "
      "factors and bias correction, scored by output SQNR on calibration samples that nothing was made from";
  table.columns = {"candidate", "output SQNR dB"};
  for (const ScoredCandidate& candidate : o.candidates) {
    if (candidate.chosen) table.chosen = static_cast<std::int64_t>(table.rows.size());
    table.rows.push_back({candidate.name, candidate.refused
                                              ? std::string("changes the float outputs")
                                              : fmt::format("{:.3f}", candidate.held_out_sqnr_db)});
  }
  report.tables.push_back(std::move(table));
}

std::string loss_db(double relative) {
  return relative > 0 ? fmt::format("{:.2f}", -10 * std::log10(relative)) : std::string("-");
}

// Only where layers were judged by their output error: else there is nothing to tell them apart.
void report_weight_methods(Report& report, const QuantizeOutcome& o) {
  ReportTable table;
  table.title = "Weight methods";
  table.note =
      "output SQNR of each layer alone, by the moments of its input: what was chosen, and what else was "
      "tried";
  table.columns = {"weight", "method", "SQNR dB", "held out", "tried"};
  bool several = false;
  for (std::size_t i = 0; i < o.plan.weights.size(); ++i) {
    const quant::LayerRecord& record = o.plan.weights[i].record;
    const quant::WeightSite& site = o.plan.placement.weights[i];
    std::string tried;
    for (const auto& [method, loss] : record.tried)
      tried += fmt::format("{}{} {}", tried.empty() ? "" : ", ", method, loss_db(loss));
    several = several || (record.method != "search" && record.method != "rtn");
    table.rows.push_back({value_label(o.source, site.path, site.value), record.method, loss_db(record.loss),
                          loss_db(record.held_out_loss), tried});
  }
  if (several) report.tables.push_back(std::move(table));
}

// What an expert's codes rest on.
void report_reached(Report& report, const QuantizeOutcome& o) {
  if (o.reached.empty()) return;
  ReportTable table;
  table.title = "Tokens of experts";
  table.note =
      "calibration tokens that reached a layer; codes rest on little where they are fewer than its inputs";
  table.columns = {"weight", "tokens", "of", "inputs"};
  for (const ReachedLayer& layer : o.reached)
    table.rows.push_back(
        {layer.tensor, std::to_string(layer.tokens), std::to_string(layer.of), std::to_string(layer.inputs)});
  report.tables.push_back(std::move(table));
}

// One sentence a reason, however many layers have it.
void warn_of_fallbacks(Report& report, const QuantizeOutcome& o) {
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;  // in the order of the layers
  for (std::size_t i = 0; i < o.plan.weights.size(); ++i) {
    const quant::LayerRecord& record = o.plan.weights[i].record;
    if (record.fallback.empty()) continue;
    const quant::WeightSite& site = o.plan.placement.weights[i];
    const std::string reason = fmt::format("{}, because {}", record.method, record.fallback);
    auto known =
        std::find_if(reasons.begin(), reasons.end(), [&](const auto& r) { return r.first == reason; });
    if (known == reasons.end()) known = reasons.insert(reasons.end(), {reason, {}});
    known->second.push_back(value_label(o.source, site.path, site.value));
  }
  for (const auto& [reason, layers] : reasons)
    report.warnings.push_back(
        fmt::format("weight '{}'{}: {}", layers.front(),
                    layers.size() == 1 ? "" : fmt::format(" and {} more", layers.size() - 1), reason));
}

void report_transforms(Report& report, const QuantizeOutcome& o) {
  if (!o.scaled.empty()) {
    ReportTable table;
    table.title = "Scaled channels";
    table.note =
        "factors moved between activations and the weights that read them; the float function is unchanged";
    table.columns = {"tensor", "by", "strength", "predicted gain dB", "place"};
    for (const ScaledValue& value : o.scaled)
      table.rows.push_back({value.tensor, value.family, number_text_short(value.strength),
                            fmt::format("{:.2f}", value.predicted_gain_db), value.folded ? "folded" : "Mul"});
    report.tables.push_back(std::move(table));
  }
  if (!o.low_rank.empty()) {
    ReportTable table;
    table.title = "Low-rank corrections";
    table.note = "output SQNR of each layer alone, without and with the products beside its codes";
    table.columns = {"weight", "rank", "without dB", "with dB"};
    for (const LowRankLayer& layer : o.low_rank)
      table.rows.push_back(
          {layer.tensor, std::to_string(layer.rank), loss_db(layer.plain_loss), loss_db(layer.loss)});
    report.tables.push_back(std::move(table));
  }
}

}  // namespace

void report_outcome(Report& report, const QuantizeOutcome& o) {
  report_weights(report, o);
  for (std::size_t i = 0; i < o.plan.activations.size(); ++i) report_activation(report, o, i);
  for (const TensorStats& stats : o.stats) warn_about(report, stats);
  for (const std::string& sentence : o.plan.placement.unmatched) report.warnings.push_back(sentence);
  for (const std::string& sentence : o.plan.placement.notes) report.warnings.push_back(sentence);
  for (const quant::Skipped& skipped : o.plan.placement.skipped)
    report.skipped.push_back({skipped.tensor, skipped.why});
  for (const std::string& note : o.notes) report.warnings.push_back(note);
  warn_of_fallbacks(report, o);
  report_candidates(report, o);
  report_weight_methods(report, o);
  report_reached(report, o);
  report_transforms(report, o);
}

void report_blocks(Report& report, const BlocksOutcome& blocks) {
  ReportTable table;
  table.title = "Blocks";
  table.note = fmt::format(
      "output of each block alone on a few samples, fed by what stands before it; {} of activations between "
      "blocks, in {}",
      bytes_text(static_cast<double>(blocks.activation_bytes)),
      blocks.activations_in_file ? "a file" : "memory");
  table.note += fmt::format("; {} of finished blocks on the disk, {} foreseen",
                            bytes_text(static_cast<double>(blocks.journal_bytes)),
                            bytes_text(static_cast<double>(blocks.journal_foreseen)));
  if (blocks.resumed > 0)
    table.note += fmt::format("; {} blocks were taken over from an earlier process", blocks.resumed);
  table.columns = {"block", "layers", "output SQNR dB", "chosen", "seconds"};
  for (const BlockRecord& r : blocks.blocks)
    table.rows.push_back({r.name, std::to_string(r.layers),
                          std::isnan(r.output_sqnr_db) ? "-" : fmt::format("{:.2f}", r.output_sqnr_db),
                          r.candidate.empty() ? "-" : r.candidate, fmt::format("{:.1f}", r.seconds)});
  report.tables.push_back(std::move(table));
}

ReportHistogram plot_histogram(const TensorStats& stats) {
  ReportHistogram h;
  h.tensor = stats.name;
  int used[2] = {0, 0};
  const std::uint64_t* const sides[2] = {stats.positive(), stats.negative()};
  for (int side = 0; side < 2; ++side)
    for (int b = 0; b < kBins; ++b)
      if (sides[side][b] != 0) used[side] = b + 1;
  const int group = std::max(1, (std::max(used[0], used[1]) + kPlotBins - 1) / kPlotBins);
  const int right = (used[0] + group - 1) / group, left = (used[1] + group - 1) / group;
  h.width = stats.width() * group;
  h.start = -h.width * left;
  h.counts.assign(static_cast<std::size_t>(left + right), 0);
  for (int b = 0; b < kBins; ++b) {
    if (stats.positive()[b] != 0)
      h.counts[static_cast<std::size_t>(left + b / group)] += static_cast<std::int64_t>(stats.positive()[b]);
    if (stats.negative()[b] != 0)
      h.counts[static_cast<std::size_t>(left - 1 - b / group)] +=
          static_cast<std::int64_t>(stats.negative()[b]);
  }
  h.least = stats.min;
  h.largest = stats.max;
  h.total = static_cast<std::int64_t>(stats.total);
  h.zeros = static_cast<std::int64_t>(stats.zeros);
  h.nan = static_cast<std::int64_t>(stats.nan);
  h.inf = static_cast<std::int64_t>(stats.positive_inf + stats.negative_inf);
  return h;
}

std::string chosen_name(const QuantizeOutcome& outcome, const QuantizeSpec& recipe) {
  std::string ranges;
  for (const ScoredCandidate& candidate : outcome.candidates)
    if (candidate.chosen) ranges = candidate.name;
  const std::vector<quant::ActivationSite>& sites = outcome.plan.placement.activations;
  const bool fixed = std::any_of(sites.begin(), sites.end(),
                                 [](const quant::ActivationSite& site) { return !site.format.dynamic; });
  if (ranges.empty() && fixed) {
    const std::string& calibrator = recipe.activations.calibrator;
    ranges = calibrator.empty() || calibrator == "auto" ? "mse" : calibrator;
  }
  if (recipe.method == "auto") return ranges.empty() ? recipe.method : ranges;
  const std::string scaling = recipe.scaling.empty() ? "" : recipe.scaling + " factors, ";
  return scaling + recipe.method + (ranges.empty() ? "" : ", ranges by " + ranges);
}

}  // namespace pare
