#include "eval/metric_table.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "engine/base/error.h"

namespace pare {

const std::vector<MetricInfo>& metric_table() {
  using enum MetricNeeds;
  // name, higher is better, absolute, needs, implemented, what
  static const std::vector<MetricInfo> kTable = {
      {"top1", true, true, kLabels, true, "share of samples whose largest output is the label, in [0,1]"},
      {"top5", true, true, kLabels, true, "share of samples with the label among the 5 largest outputs"},
      {"top1_agreement", true, false, kNothing, true, "share of samples with the reference's largest output"},
      {"cer", false, true, kTexts, true, "character error rate of CTC text: errors / characters"},
      {"box_agreement", true, false, kBoxes, true, "share of boxes that both models find, in [0,1]"},
      {"frame_agreement", true, false, kNothing, true, "share of frames with the reference's decision"},
      {"perplexity", false, true, kTokens, true, "exp of the mean negative log likelihood a token"},
      {"kl", false, false, kTokens, true, "KL(reference || candidate) in nats a token"},
      {"token_agreement", true, false, kTokens, true, "share of tokens with the reference's top choice"},
      {"embedding_cosine", true, false, kNothing, true,
       "mean cosine of embeddings, means over tokens, in [-1,1]"},
      {"output_sqnr_db", true, false, kNothing, true, "signal to quantization noise of the outputs, dB"},
      {"output_cosine", true, false, kNothing, true, "mean cosine of a sample's outputs, in [-1,1]"},
      {"max_abs", false, false, kNothing, true, "largest absolute difference of an output"},
      {"clipping_rate", false, false, kNothing, true,
       "share of evaluation values outside their calibrated range, in [0,1]"},
  };
  return kTable;
}

const MetricInfo* find_metric(const std::string& name) {
  for (const MetricInfo& info : metric_table())
    if (name == info.name) return &info;
  return nullptr;
}

std::vector<const char*> metric_names() {
  std::vector<const char*> names;
  for (const MetricInfo& info : metric_table()) names.push_back(info.name);
  return names;
}

std::string metric_hint(const std::string& name) {
  // What papers and other tools call them.
  static constexpr std::pair<const char*, const char*> kOtherNames[] = {
      {"ppl", "perplexity"},     {"kld", "kl"},
      {"kl_divergence", "kl"},   {"accuracy", "top1"},
      {"acc", "top1"},           {"top_1", "top1"},
      {"top_5", "top5"},         {"sqnr", "output_sqnr_db"},
      {"snr", "output_sqnr_db"}, {"cosine", "output_cosine"},
      {"max_diff", "max_abs"}};
  const std::vector<const char*> names = metric_names();
  std::string near;
  for (const auto& [other, metric] : kOtherNames)
    if (name == other) near = metric;
  if (near.empty()) near = nearest_word(name, names.data(), names.size());
  return near.empty() ? fmt::format("one of {}", fmt::join(names, ", "))
                      : fmt::format("did you mean '{}'?", near);
}

GateMetric parse_gate_metric(const std::string& name) {
  const auto without = [&](const std::string& suffix) {
    if (name.size() <= suffix.size() || name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0)
      return static_cast<const MetricInfo*>(nullptr);
    return find_metric(name.substr(0, name.size() - suffix.size()));
  };
  if (const MetricInfo* metric = without("_drop_rel")) return {metric, GateKind::kDropRelative};
  if (const MetricInfo* metric = without("_drop")) return {metric, GateKind::kDrop};
  return {find_metric(name), GateKind::kValue};
}

std::string gate_metric_hint(const std::string& name) {
  std::vector<std::string> gates;
  for (const char* metric : metric_names())
    for (const char* kind : {"", "_drop", "_drop_rel"}) gates.push_back(std::string(metric) + kind);
  std::vector<const char*> names;
  for (const std::string& gate : gates) names.push_back(gate.c_str());
  const std::string near = nearest_word(name, names.data(), names.size());
  if (near.empty()) return "a metric of `evaluate.metrics`, or its name with _drop or _drop_rel";
  // A metric and a word of one's own for how much worse it is.
  const MetricInfo* metric = find_metric(near);
  if (metric != nullptr && metric->absolute && name.rfind(near + "_", 0) == 0)
    return fmt::format(
        "did you mean '{0}_drop'? it is how much worse the candidate is than the reference, "
        "{0}_drop_rel is that divided by it",
        near);
  return fmt::format("did you mean '{}'?", near);
}

double metric_drop(const MetricInfo& metric, GateKind kind, double reference, double candidate) {
  if (kind == GateKind::kValue) return candidate;
  const double drop = metric.higher_is_better ? reference - candidate : candidate - reference;
  if (kind == GateKind::kDrop) return drop;
  if (drop == 0) return 0;
  return drop / std::fabs(reference);
}

double metric_at_drop(const MetricInfo& metric, GateKind kind, double reference, double drop) {
  if (kind == GateKind::kValue) return drop;
  const double worse = kind == GateKind::kDrop ? drop : drop * std::fabs(reference);
  return metric.higher_is_better ? reference - worse : reference + worse;
}

}  // namespace pare
