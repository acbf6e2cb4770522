#include <cctype>
#include <set>

#include <fmt/format.h>

#include "engine/base/error.h"
#include "engine/base/paths.h"
#include "engine/build/profile.h"
#include "eval/metric_table.h"
#include "quant/placement/spec.h"
#include "recipes/grammar/fields.h"
#include "recipes/grammar/load.h"
#include "recipes/grammar/mistakes.h"

namespace pare {

std::string place_of(const TreeNode& root, const std::string& path) {
  const TreeNode* at = &root;
  std::string place = to_string(root.place);
  for (std::size_t begin = 0; begin <= path.size();) {
    std::size_t dot = path.find('.', begin);
    if (dot == std::string::npos) dot = path.size();
    const std::string step = path.substr(begin, dot - begin);
    const TreeNode* next = at->find(step);
    if (at->kind == TreeNode::Kind::kList) {
      std::size_t index = 0;
      for (char c : step) index = index * 10 + static_cast<std::size_t>(c - '0');
      next = index < at->items.size() ? &at->items[index] : nullptr;
    }
    if (next == nullptr) break;
    at = next;
    place = to_string(at->place);
    begin = dot + 1;
  }
  return place;
}

namespace {

class Checker {
 public:
  Checker(const Recipe& recipe, const TreeNode& tree, Mistakes& mistakes)
      : r_(recipe), tree_(tree), mistakes_(mistakes) {}

  void sense() const {
    check_name();
    for (const auto& [name, entry] : r_.datasets) check_dataset("datasets." + name, entry);
    if (r_.calibrate) check_calibrate();
    if (r_.quantize) check_quantize();
    if (r_.evaluate) check_evaluate();
    if (r_.build) check_build();
  }

  void files() const {
    file("model.path", r_.model.path, "the model");
    for (const auto& [name, entry] : r_.datasets) {
      file("datasets." + name + ".path", entry.spec.path, "the data set");
      labels("datasets." + name + ".labels", entry.spec.labels, "the file of labels");
      labels("datasets." + name + ".width_from", entry.spec.width_from, "the file of widths");
      file("datasets." + name + ".alphabet", entry.spec.alphabet, "the alphabet");
    }
    if (r_.calibrate) file("calibrate.stats", r_.calibrate->stats, "the statistics");
    if (r_.evaluate) file("evaluate.baseline", r_.evaluate->baseline, "the baseline report");
  }

 private:
  // One more mistake; the checks go on.
  void refuse(const std::string& path, const std::string& what, const std::string& hint) const {
    mistakes_.add(make_error(ErrorCode::kUsage, "{}", what).at(place_of(tree_, path)).hint(hint));
  }

  void check_name() const {
    for (char c : r_.name)
      if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && c != '.')
        return refuse("name", fmt::format("the name '{}' cannot name a folder", r_.name),
                      "use letters, digits, '-', '_' and '.'");
    if (r_.name.empty() || r_.name[0] == '.')
      refuse("name", fmt::format("the name '{}' cannot name a folder", r_.name),
             "begin with a letter or digit");
  }

  void check_dataset(const std::string& key, const DatasetEntry& entry) const {
    const DatasetSpec& d = entry.spec;
    for (const auto& [input, value] : entry.constants) {
      double number = 0;
      if (!number_from_text(value, number))
        refuse(key + ".constants", fmt::format("'{}' of input '{}' is no number", value, input),
               "constants: {INPUT: NUMBER}");
    }
    if (d.kind == "audio" && d.frame == 0)
      refuse(key, "audio is cut into frames, and nothing says how long they are", "add `frame: N`");
    else if (d.frame == 0 && (d.context > 0 || d.rate > 0))
      refuse(key + (d.context > 0 ? ".context" : ".rate"), "context and rate are for audio, which has frames",
             "add `frame: N`");
    if (!d.reset.empty() && d.feedback.empty())
      refuse(key + ".reset", "there is no state to be reset", "add feedback: {INPUT: OUTPUT}");
    if (d.shuffle && !d.feedback.empty())
      refuse(key + ".shuffle", "shuffle and feedback contradict each other: a state follows time",
             "leave `shuffle` out");
    if (!d.width_from.empty() && d.layout == DataLayout::kUnset && d.kind != "images")
      refuse(key + ".width_from", "width_from without a layout", "add layout: nhwc_to_nchw, nhwc or nchw");
    if (!d.boxes.given()) return;
    const BoxSpec& b = d.boxes;
    if (b.scores.size() != b.boxes.size())
      refuse(key + ".boxes",
             fmt::format("{} outputs with scores, but {} with boxes", b.scores.size(), b.boxes.size()),
             "they go in pairs");
    if (!b.strides.empty() && b.strides.size() != b.boxes.size())
      refuse(key + ".boxes.strides",
             fmt::format("{} strides for {} outputs", b.strides.size(), b.boxes.size()),
             "one for each output of `boxes`");
    if (b.strides.empty() != b.size.empty() || b.size.size() > 2)
      refuse(key + ".boxes", "strides and size belong together: a grid of cells over an image",
             "for example strides: [16, 32], size: 256");
  }

  bool dataset_exists(const std::string& key, const std::string& name) const {
    if (r_.datasets.count(name) != 0) return true;
    std::vector<const char*> known;
    for (const auto& entry : r_.datasets) known.push_back(entry.first.c_str());
    const std::string near = nearest_word(name, known.data(), known.size());
    std::string hint = "add it under `datasets`";
    if (!near.empty())
      hint = fmt::format("did you mean '{}'?", near);
    else if (!known.empty())
      hint += fmt::format("; there is: {}", fmt::join(known, ", "));
    refuse(key, fmt::format("'{}' names no data set", name), hint);
    return false;
  }

  // The data set that most likely was meant to calibrate with: "calibration", else the first.
  std::string likely_data() const {
    if (r_.datasets.empty()) return "NAME";
    return r_.datasets.count("calibration") != 0 ? "calibration" : r_.datasets.begin()->first;
  }

  void check_calibrate() const {
    const CalibrateSpec& c = *r_.calibrate;
    if (c.data.empty() && c.stats.empty())
      refuse("calibrate", "'calibrate' needs `data` or `stats`",
             fmt::format("for example calibrate: {{data: {}}}", likely_data()));
    if (!c.data.empty() && !c.stats.empty())
      refuse("calibrate.stats", "'calibrate' has both `data` and `stats`", "keep one of them");
    if (!c.data.empty()) dataset_exists("calibrate.data", c.data);
  }

  void check_quantize() const {
    const QuantizeSpec& q = *r_.quantize;
    if (q.scheme.empty() && q.weights.format.empty() && q.activations.format.empty())
      return refuse("quantize", "'quantize' says no format",
                    "give it a scheme: int8, fp8 ... (pare ops --formats)");
    const bool activations = !q.activations.format.empty() && q.activations.format != "none";
    const bool scheme_activations = check_scheme(q.scheme);
    const bool dynamic = q.activations.dynamic.value_or(q.activations.granularity == "token");
    if ((activations || (scheme_activations && q.activations.format.empty())) && !dynamic && !r_.calibrate)
      refuse(
          "quantize", "activations are quantized but nothing calibrates them",
          fmt::format("add calibrate: {{data: {}}}, or activations: {{format: none}}, or {{dynamic: true}}",
                      likely_data()));
    if (!q.activations.calibrator.empty()) check_calibrator(q.activations.calibrator);
    check_weights("quantize.weights", q.weights);
    if (q.activations.format.rfind("fp8", 0) == 0 && q.activations.symmetric == false)
      refuse("quantize.activations.symmetric", "fp8 activations have no zero point",
             "leave `symmetric` out, or use int8");
    for (std::size_t i = 0; i < q.rules.size(); ++i) check_rule(i, q.rules[i]);
    std::set<std::string> methods = {q.method};
    for (const RuleSpec& rule : q.rules)
      if (!rule.method.empty()) methods.insert(rule.method);
    const auto uses = [&](const char* method) { return methods.count(method) + methods.count("auto") > 0; };
    if (q.alpha && methods.count("smoothquant") == 0)
      refuse("quantize.alpha", fmt::format("'alpha' has no meaning for method {}", q.method),
             "use method: smoothquant");
    if (q.damp && !uses("gptq"))
      refuse("quantize.damp", fmt::format("'damp' has no meaning for method {}", q.method),
             "use method: gptq");
    if (q.output_damp && q.objective != "model")
      refuse("quantize.output_damp", "'output_damp' has no meaning for objective layer", "objective: model");
    if (q.act_order && !uses("gptq"))
      refuse("quantize.act_order", fmt::format("'act_order' has no meaning for method {}", q.method),
             "use method: gptq");
    if (!q.column_order.empty() && !uses("gptq"))
      refuse("quantize.column_order", fmt::format("'column_order' has no meaning for method {}", q.method),
             "use method: gptq");
    if (!q.column_order.empty() && q.act_order)
      refuse("quantize.column_order", "'act_order' says the order already", "leave one of the two out");
    if (!q.kv_cache.empty() && !r_.calibrate)
      refuse("quantize.kv_cache", "keys and values are quantized but nothing calibrates them",
             "add calibrate: {data: NAME}");
    if (q.blocks && (!r_.calibrate || r_.calibrate->data.empty()))
      refuse("quantize.blocks", "blocks are fed with samples, and there are none",
             "add calibrate: {data: NAME}, or leave `blocks` out: rtn and search need no samples");
    if (q.blocks && !r_.surgery.empty() && r_.surgery != std::vector<std::string>{"simplify"})
      refuse("quantize.blocks", "a model that is quantized in blocks is simplified, nothing else",
             "leave `surgery` out");
  }

  // Whether the scheme quantizes activations.
  bool check_scheme(const std::string& scheme) const {
    if (scheme.empty()) return false;
    for (const quant::Scheme& s : quant::schemes())
      if (scheme == s.name) return s.activations.active() && !s.activations.dynamic;
    refuse("quantize.scheme", fmt::format("there is no scheme '{}'", scheme), quant::scheme_hint(scheme));
    return false;
  }

  void check_weights(const std::string& key, const WeightSpec& w) const {
    const bool grouped = w.granularity == "group" || w.granularity == "block";
    if (w.group_size > 0 && !w.granularity.empty() && !grouped)
      refuse(key + ".group_size",
             fmt::format("'group_size' has no meaning with granularity {}", w.granularity),
             "use granularity: group");
    if (w.format.rfind("fp8", 0) == 0 && w.symmetric == false)
      refuse(key + ".symmetric", "fp8 weights have no zero point", "leave `symmetric` out");
  }

  void check_calibrator(const std::string& text) const {
    if (text.rfind("percentile(", 0) != 0) return;
    double value = 0;
    const std::string inside = text.substr(11, text.size() - 12);
    if (!number_from_text(inside, value) || value <= 50 || value > 100)
      refuse("quantize.activations.calibrator",
             fmt::format("'{}' is no percentile: a number above 50 and up to 100 is needed", text),
             "for example percentile(99.99)");
  }

  void check_rule(std::size_t i, const RuleSpec& rule) const {
    const std::string key = fmt::format("quantize.rules.{}", i);
    const MatchSpec& m = rule.match;
    if (m.name.empty() && m.op.empty() && m.tensor.empty() && m.dtype.empty() && m.block.empty())
      refuse(key + ".match", fmt::format("rule {} matches everything", i),
             "give `match` a name, op, tensor, dtype or block");
    const bool says = rule.quantize.has_value() || !rule.method.empty() || !rule.weights.format.empty() ||
                      !rule.weights.granularity.empty() || rule.weights.symmetric.has_value() ||
                      !rule.weights.search.empty() || rule.weights.group_size != 0 ||
                      !rule.activations.format.empty() || !rule.activations.calibrator.empty() ||
                      rule.activations.symmetric.has_value() || !rule.activations.granularity.empty() ||
                      rule.activations.dynamic.has_value();
    if (!says) refuse(key, fmt::format("rule {} changes nothing", i), "for example quantize: false");
    check_weights(key + ".weights", rule.weights);
  }

  void check_build() const {
    const BuildSpec& b = *r_.build;
    const bool numbered = b.device.rfind("cuda:", 0) == 0 && b.device.size() > 5 && b.device.size() < 9 &&
                          b.device.find_first_not_of("0123456789", 5) == std::string::npos;
    if (b.device != "auto" && b.device != "cpu" && b.device != "cuda" && !numbered)
      refuse("build.device", fmt::format("'{}' is no device", b.device), "auto, cpu, cuda or cuda:N");
    for (const auto& [name, sizes] : b.profiles) try {
        parse_profile(name + "=" + sizes);
      } catch (const Error& error) {
        refuse("build.profiles." + name, error.what(), "MINxOPTxMAX: 1x8x32");
      }
    if (b.require_cached_tactics && b.timing_cache.empty())
      refuse("build.require_cached_tactics", "there is no cache", "add timing_cache: FILE");
    if (!r_.quantize && r_.surgery.empty())
      refuse("build", "nothing is done to the model that the engine would be of",
             "`pare build MODEL` builds it");
  }

  void check_evaluate() const {
    const EvaluateSpec& e = *r_.evaluate;
    const bool known_data = e.data.empty() || dataset_exists("evaluate.data", e.data);
    for (std::size_t i = 0; i < e.metrics.size(); ++i) {
      const std::string key = fmt::format("evaluate.metrics.{}", i);
      const MetricInfo* metric = find_metric(e.metrics[i]);
      if (metric == nullptr) {
        refuse(key, fmt::format("there is no metric '{}'", e.metrics[i]), metric_hint(e.metrics[i]));
      }
      if (metric == nullptr || !known_data) continue;
      const DatasetSpec& d = r_.datasets.at(e.data).spec;
      const bool labels = metric->needs == MetricNeeds::kLabels || metric->needs == MetricNeeds::kTexts;
      if (labels && d.labels.empty())
        refuse(key, fmt::format("metric {} needs labels, and data set '{}' has none", e.metrics[i], e.data),
               "add `labels: FILE` to the data set");
      if (metric->needs == MetricNeeds::kTexts && d.alphabet.empty())
        refuse(key,
               fmt::format("metric {} needs an alphabet, and data set '{}' has none", e.metrics[i], e.data),
               "add `alphabet: FILE` to the data set, one character a line");
      if (metric->needs == MetricNeeds::kBoxes && !d.boxes.given())
        refuse(key,
               fmt::format("metric {} needs boxes, and data set '{}' does not say where they are",
                           e.metrics[i], e.data),
               "add `boxes: {scores: OUTPUT, boxes: OUTPUT}` to the data set");
    }
    for (std::size_t i = 0; i < e.gates.size(); ++i) check_gate(i, e.gates[i]);
  }

  void check_gate(std::size_t i, const GateSpec& gate) const {
    const std::string key = fmt::format("evaluate.gates.{}", i);
    if (!gate.max && !gate.min)
      return refuse(key, fmt::format("the gate on {} has no limit", gate.metric), "give it `max` or `min`");
    const GateMetric parsed = parse_gate_metric(gate.metric);
    if (parsed.metric == nullptr)
      return refuse(key + ".metric", fmt::format("there is no metric '{}'", gate.metric),
                    gate_metric_hint(gate.metric));
    bool computed = false;
    for (const std::string& metric : r_.evaluate->metrics)
      computed = computed || metric == parsed.metric->name;
    if (!computed)
      refuse(key + ".metric",
             fmt::format("a gate on {}, but {} is not computed", gate.metric, parsed.metric->name),
             fmt::format("add {} to evaluate.metrics", parsed.metric->name));
    if (parsed.kind != GateKind::kValue && !parsed.metric->absolute && r_.evaluate->baseline.empty())
      refuse(key + ".metric",
             fmt::format("{} already compares with the reference, so {} needs a baseline report",
                         parsed.metric->name, gate.metric),
             fmt::format("add evaluate.baseline, or use a gate on {}", parsed.metric->name));
  }

  // They may also be a key inside an npz or HDF5 file.
  void labels(const std::string& key, const std::string& text, const char* what) const {
    std::string path, inside;
    const std::string kind = file_extension(text);
    if (split_file_key(text, path, inside))
      file(key, path, what);
    else if (kind == ".npy" || kind == ".csv" || kind == ".txt")
      file(key, text, what);
  }

  void file(const std::string& key, const std::string& path, const char* what) const {
    if (path.empty() || path.find_first_of("*?[") != std::string::npos) return;
    const std::string full = r_.resolve(path);
    if (!path_exists(full))
      mistakes_.add(make_error(ErrorCode::kBadFile, "{} '{}' does not exist", what, full)
                        .at(place_of(tree_, key))
                        .hint("paths in a recipe are relative to the recipe's folder"));
  }

  const Recipe& r_;
  const TreeNode& tree_;
  Mistakes& mistakes_;
};

}  // namespace

void check_recipe(const Recipe& recipe, const TreeNode& tree, bool check_files) {
  Mistakes mistakes;
  const Checker checker(recipe, tree, mistakes);
  checker.sense();
  if (check_files) checker.files();
  mistakes.raise();
}

}  // namespace pare
