// `pare sensitivity`, `pare search`, `pare bisect`: which layers hurt, which format each should have, which
// are to blame.
#include <algorithm>
#include <memory>
#include <optional>

#include "calib/calibrate.h"
#include "cli/commands.h"
#include "cli/data_argument.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"
#include "eval/report_render.h"
#include "graphsurgeon/graph_hash.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/simplify.h"
#include "quant/placement/activation.h"
#include "quant/placement/rules.h"
#include "recipes/grammar/load.h"
#include "recipes/grammar/recipe_keys.h"
#include "recipes/quant_spec.h"
#include "recipes/quantize/values_to_watch.h"
#include "recipes/stages.h"
#include "recipes/study/bisect.h"
#include "recipes/study/sensitivity.h"

namespace pare {
namespace {

constexpr const char* kSqnr = "output_sqnr_db";

// What both ask for, and the samples that they look at.
class LayerStudy : public Command {
 protected:
  void declare_common(Args& args) {
    args.positional("MODEL", path_, "ONNX file; or a recipe: its model, data sets and `quantize`")
        .option("--data", "DATA", data_, kDataHelp, "calibrate.data")
        .option("--samples", "N", samples_, "calibration samples (default 256)")
        .option("--judge-samples", "N", judged_,
                "samples behind them, or of --judge-data, to judge on (default 64)")
        .option("--judge-data", "DATA", judge_data_, "judge on other data, with labels for top1")
        .option("--metric", "METRIC", metric_, "what counts")
        .option("--target", "TARGET", spec_.target, "whose fusions count", "quantize.target")
        .one_of(recipe_choices("quantize.target"))
        .words("--ops", "OP", spec_.ops, "only these operators", "quantize.ops")
        .option("--exclude", "NAME", spec_.ignore, "leave a node in float: its name, or 're:PATTERN'",
                "quantize.ignore");
  }

  // Of a recipe: its model, data sets and `quantize`, with what the options say on top. Before anything else.
  void read_recipe() {
    const std::string kind = file_extension(path_);
    if (kind == ".yaml" || kind == ".yml") {
      const LoadedRecipe loaded = load_recipe(path_, {});
      const Recipe& r = loaded.recipe;
      if (!r.quantize || !r.calibrate || r.calibrate->data.empty() || !r.evaluate)
        throw make_error(ErrorCode::kUsage, "the recipe lacks `quantize`, `calibrate.data` or `evaluate`")
            .at(path_)
            .hint("name the model, and give --format and --data");
      QuantizeSpec spec = *r.quantize;
      if (!spec_.scheme.empty()) spec.scheme = spec_.scheme;
      spec.ignore.insert(spec.ignore.end(), spec_.ignore.begin(), spec_.ignore.end());
      if (!spec_.ops.empty()) spec.ops = spec_.ops;
      spec_ = std::move(spec);
      recipe_ = r;
      if (data_.empty()) calibration_ = resolved_dataset(r, r.calibrate->data);
      if (judge_data_.empty() && data_.empty()) judge_ = resolved_dataset(r, r.evaluate->data);
      if (samples_ == 0 && calibration_) samples_ = calibration_->samples;
      path_ = r.resolve(r.model.path);
    } else if (data_.empty()) {
      throw make_error(ErrorCode::kUsage, "there is no data to calibrate and judge with")
          .hint("add --data FILE:key=value,..., or name a recipe instead of the model");
    }
    if (!calibration_) calibration_ = data_argument(data_, path_);
    if (!judge_data_.empty()) judge_ = data_argument(judge_data_, path_);
  }

  // What the recipe's run would do, if there is one: its export leaves some layers float.
  QuantizeChoices choices_of(const QuantizeSpec& spec) const {
    if (!recipe_) return quantize_choices(spec);
    Recipe one = *recipe_;
    one.quantize = spec;
    return fitted_choices(one);
  }

  void need_format() const {
    if (spec_.scheme.empty() && spec_.weights.format.empty() && spec_.activations.format.empty())
      throw make_error(ErrorCode::kUsage, "--format is missing")
          .hint("--format int8 ... (`pare ops --formats` lists them), or name a recipe instead of the model");
  }

  // Fills `input`; `specs` are all that will be tried.
  void prepare(Context& context, const std::vector<quant::Spec>& specs, SensitivityInput& input) {
    graph_ = load_model(path_);
    SimplifyOptions simplify_options;
    simplify_options.pool = &context.pool();
    simplify(graph_, simplify_options);
    for (const quant::Spec& spec : specs)
      for (const std::string& sentence : quant::RuleBook(spec).unmatched(graph_)) context.warn(sentence);
    share_samples(context);
    DatasetSpec calibration = *calibration_;
    calibration.samples = samples_;
    bool statistics = false;
    for (const quant::Spec& spec : specs) statistics = statistics || quant::needs_statistics(spec);
    if (statistics) {
      Dataset samples(calibration, model_inputs(graph_));
      CalibrateOptions options;
      options.pool = &context.pool();
      options.progress = &context.progress();
      options.graph_hash = hex(graph_hash(graph_));
      std::vector<CalibratedValue> values;
      for (const quant::Spec& spec : specs)
        for (const CalibratedValue& value : calibrated_values(graph_, &spec))
          if (std::none_of(values.begin(), values.end(), [&](const CalibratedValue& seen) {
                return seen.id == value.id && seen.path == value.path;
              }))
            values.push_back(value);
      input.stats = calibrate(graph_, values, samples, options).statistics.tensors;
    }
    calibration_set_ = std::make_unique<Dataset>(calibration, model_inputs(graph_));
    input.calibration = calibration_set_.get();
    DatasetSpec judged = judge_ ? *judge_ : *calibration_;
    if (!judge_) judged.skip += samples_;
    judged.samples = judged_;
    data_set_ = std::make_unique<Dataset>(judged, model_inputs(graph_));
    input.graph = &graph_;
    input.data = data_set_.get();
    input.pool = &context.pool();
    input.progress = &context.progress();
    input.metric = metric_;
  }

  QuantizeSpec spec_;
  std::string metric_ = "output_sqnr_db";

 private:
  // How many samples of one data set are calibrated with, and how many judged on. Without a word about it a
  // small set gives its last quarter to the judge.
  void share_samples(Context& context) {
    const bool asked = samples_ > 0 && judged_ > 0;
    if (samples_ <= 0) samples_ = kSamples;
    if (judged_ <= 0) judged_ = kJudged;
    if (judge_) return;
    DatasetSpec whole = *calibration_;
    whole.samples = 0;
    const std::int64_t count = Dataset(whole, model_inputs(graph_)).sample_count();
    if (count >= samples_ + judged_) return;
    const std::int64_t judged = std::min(judged_, std::max<std::int64_t>(1, count / 4));
    if (asked || count < 2)
      throw make_error(ErrorCode::kUsage,
                       "{} samples to calibrate with and {} to judge on are {}, and the data has {}",
                       samples_, judged_, samples_ + judged_, count)
          .at(calibration_->path)
          .hint(count < 2 ? "give more samples, or --judge-data"
                          : fmt::format("--samples {} --judge-samples {}, or --judge-data DATA",
                                        count - judged, judged));
    judged_ = judged;
    samples_ = std::min(samples_, count - judged);
    context.message(fmt::format("the data has {} samples: {} to calibrate with, {} to judge on", count,
                                samples_, judged_));
  }

  static constexpr std::int64_t kSamples = 256, kJudged = 64;
  std::string path_, data_, judge_data_;
  std::optional<DatasetSpec> calibration_, judge_;
  std::int64_t samples_ = 0, judged_ = 0;  // 0: the default
  Graph graph_;
  std::unique_ptr<Dataset> data_set_, calibration_set_;
  std::optional<Recipe> recipe_;  // instead of a model
};

class Sensitivity final : public LayerStudy {
 public:
  const char* name() const override { return "sensitivity"; }
  const char* what() const override { return "which layers hurt: the model quantized layer by layer"; }

  void declare(Args& args) override {
    declare_common(args);
    args.option("--format", "SCHEME", spec_.scheme, "what layers are quantized to (`pare ops --formats`)",
                "quantize.scheme")
        .flag("--all-but-one", all_but_one_, "quantize everything but one layer instead")
        .example(
            "pare sensitivity resnet.onnx --format int8 --data "
            "\"images.npy:layout=nhwc_to_nchw,scale=1/255\"")
        .example("pare sensitivity recipe.yaml");
  }

  int run(Context& context) override {
    read_recipe();
    need_format();
    SensitivityOptions options;
    options.choices = choices_of(spec_);
    options.all_but_one = all_but_one_;
    SensitivityInput input;
    prepare(context, {options.choices.spec}, input);
    const std::vector<LayerSensitivity> rows = measure_sensitivity(input, options);
    Json layers = Json::array();
    context.print(
        fmt::format("{}, judged on {} samples, most sensitive first",
                    all_but_one_ ? "every layer quantized but the one named" : "each layer quantized alone",
                    input.data->sample_count()));
    const bool other = metric_ != kSqnr;
    context.print(fmt::format("  {:<40} {:<22}{} {:>14}", "layer", "format",
                              other ? fmt::format(" {:>14} {:>10}", metric_, "drop") : "", kSqnr));
    for (const LayerSensitivity& row : rows) {
      const std::string values =
          other ? fmt::format(" {:>14} {:>10.4g}", metric_text(metric_, row.metric), row.drop) : "";
      context.print(fmt::format("  {:<40} {:<22}{} {:>14}", row.name, row.format, values,
                                metric_text(kSqnr, row.sqnr_db)));
      layers.push_back({{"name", row.name},
                        {"format", row.format},
                        {"metric", json_number(row.metric)},
                        {"drop", json_number(row.drop)},
                        {"sqnr_db", json_number(row.sqnr_db)}});
    }
    Json& json = context.document();
    json["metric"] = metric_;
    json["samples"] = input.data->sample_count();
    json["layers"] = std::move(layers);
    return 0;
  }

 private:
  bool all_but_one_ = false;
};

class Search final : public LayerStudy {
 public:
  const char* name() const override { return "search"; }
  const char* what() const override { return "a format for each layer: fewest bits that keep the metric"; }

  void declare(Args& args) override {
    declare_common(args);
    args.words("--formats", "SCHEME", schemes_, "schemes to choose from; float leaves a layer alone")
        .required()
        .option("--least", "X", least_, "the metric's value that must be kept")
        .option("--points", "N", points_, "of the front that are measured")
        .flag("--by-latency", by_latency_, "choose the fastest on this CPU instead of the fewest bits")
        .example("pare search vit.onnx --formats float,int8 --data images.npy --least 35");
  }

  int run(Context& context) override {
    read_recipe();
    SearchOptions options;
    options.schemes = schemes_;
    options.least = least_;
    options.points = static_cast<int>(points_);
    options.by_latency = by_latency_;
    std::vector<quant::Spec> specs;
    for (const std::string& scheme : schemes_) {
      if (scheme == "float") continue;
      QuantizeSpec one = spec_;
      one.scheme = scheme;
      options.choices = choices_of(one);
      specs.push_back(options.choices.spec);
    }
    if (specs.empty())
      throw make_error(ErrorCode::kUsage, "there is no scheme to choose beside float")
          .at("--formats")
          .hint("--formats float,int8; `pare ops --formats` lists them");
    SensitivityInput input;
    prepare(context, specs, input);
    const SearchResult result = search_formats(input, options);
    Json front = Json::array(), chosen = Json::array(), metrics = Json::object();
    double cost = 0;
    context.print(fmt::format("judged on {} samples; * is chosen: {} that keeps {} at {}",
                              input.data->sample_count(), by_latency_ ? "the fastest" : "the fewest bits",
                              metric_, metric_text(metric_, least_)));
    for (const SearchPoint& point : result.front) {
      const std::string time = by_latency_ ? fmt::format("  {:.3f} ms", point.latency_ms) : "";
      const std::string sqnr = metric_ == kSqnr ? "" : "  " + metric_text(kSqnr, point.sqnr_db);
      context.print(fmt::format("{} {:6.3f} bits a weight  {} {}{}{}", point.chosen ? '*' : ' ',
                                point.bits_per_weight, metric_, metric_text(metric_, point.metric), sqnr,
                                time));
      front.push_back({{"metric", json_number(point.metric)},
                       {"sqnr_db", json_number(point.sqnr_db)},
                       {"bits_per_weight", point.bits_per_weight},
                       {"latency_ms", by_latency_ ? Json(point.latency_ms) : Json()},
                       {"chosen", point.chosen}});
      if (!point.chosen) continue;
      cost = by_latency_ ? point.latency_ms : point.bits_per_weight;
      metrics[metric_] = json_number(point.metric);
      for (const SearchChoice& layer : point.layers)
        chosen.push_back({{"name", layer.name}, {"format", layer.format}});
    }
    context.print("the chosen formats:");
    for (const SearchPoint& point : result.front)
      if (point.chosen)
        for (const SearchChoice& layer : point.layers)
          context.print(fmt::format("  {:<40} {}", layer.name, layer.format));
    Json& json = context.document();
    json["samples"] = input.data->sample_count();
    json["chosen"] = std::move(chosen);
    json["metrics"] = std::move(metrics);
    json["cost"] = cost;
    json["front"] = std::move(front);
    return 0;
  }

 private:
  std::vector<std::string> schemes_;
  double least_ = 30;
  std::int64_t points_ = 8;
  bool by_latency_ = false;
};

class Bisect final : public LayerStudy {
 public:
  const char* name() const override { return "bisect"; }
  const char* what() const override { return "which layers are to blame when a quantized model fails"; }

  void declare(Args& args) override {
    declare_common(args);
    args.option("--format", "SCHEME", spec_.scheme, "what layers are quantized to (`pare ops --formats`)",
                "quantize.scheme")
        .option("--least", "X", least_, "the metric's value that the model should have")
        .option("--most", "N", most_, "layers to name before giving up")
        .example("pare bisect vit.onnx --format int8 --data images.npy --least 40")
        .example("pare bisect recipe.yaml");
  }

  int run(Context& context) override {
    read_recipe();
    need_format();
    BisectOptions options;
    options.choices = choices_of(spec_);
    options.least = least_;
    options.most = static_cast<int>(most_);
    SensitivityInput input;
    prepare(context, {options.choices.spec}, input);
    const LayerBisection found = bisect_layers(input, options);
    const auto shown = [&](double metric, double sqnr_db) {
      return metric_text(metric_, metric) + (metric_ == kSqnr ? "" : ", " + metric_text(kSqnr, sqnr_db));
    };
    context.print(fmt::format("every layer quantized: {} {} on {} samples, asked for {}", metric_,
                              shown(found.quantized, found.sqnr_db), input.data->sample_count(),
                              metric_text(metric_, least_)));
    std::string names;
    Json layers = Json::array();
    std::string flags;
    for (const BlamedLayer& layer : found.layers) {
      context.print(fmt::format("  {} in float: {}  (was {})", layer.name, shown(layer.metric, layer.sqnr_db),
                                layer.format));
      names += (names.empty() ? "" : ", ") + layer.rule_name;
      flags += " --exclude '" + layer.rule_name + "'";
      layers.push_back({{"name", layer.name},
                        {"format", layer.format},
                        {"metric", json_number(layer.metric)},
                        {"sqnr_db", json_number(layer.sqnr_db)}});
    }
    if (found.layers.empty())
      context.print(fmt::format("nothing to blame: {} is kept at {}", metric_, metric_text(metric_, least_)));
    else if (found.reached)
      context.print(fmt::format("kept at {} with{}\nin a recipe: quantize: {{ignore: [{}]}}",
                                metric_text(metric_, least_), flags, names));
    else
      context.print(fmt::format("still not {}: --most names more layers; `pare search` mixes formats",
                                metric_text(metric_, least_)));
    Json& json = context.document();
    json["metric"] = metric_;
    json["samples"] = input.data->sample_count();
    json["quantized"] = {{"metric", json_number(found.quantized)}, {"sqnr_db", json_number(found.sqnr_db)}};
    json["reached"] = found.reached;
    json["candidates"] = found.candidates;
    json["layers"] = std::move(layers);
    return 0;
  }

 private:
  double least_ = 30;
  std::int64_t most_ = 16;
};

}  // namespace

std::unique_ptr<Command> make_sensitivity() { return std::make_unique<Sensitivity>(); }
std::unique_ptr<Command> make_search() { return std::make_unique<Search>(); }
std::unique_ptr<Command> make_bisect() { return std::make_unique<Bisect>(); }

}  // namespace pare
